//! XML as a flat list of elements, each with the position of its parent: no recursion, so no depth overflows a stack.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::TopologyError;

/// One element.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    /// Its parent's position in the list; parents come before their children.
    pub(crate) parent: Option<usize>,
    attributes: Vec<(&'static str, String)>,
}

/// The attributes that are asked for, sorted; the others are passed over.
const ASKED_FOR: [&str; 23] = [
    "bridge_pci",
    "busid",
    "class",
    "complete_cpuset",
    "complete_nodeset",
    "device",
    "guid",
    "link_speed",
    "link_width",
    "name",
    "nodeset",
    "numaid",
    "os_index",
    "osdev_type",
    "pci_busid",
    "pci_link_speed",
    "pci_type",
    "port",
    "speed",
    "type",
    "value",
    "vendor",
    "version",
];

impl Element {
    pub(crate) fn get(&self, attribute: &str) -> Option<&str> {
        debug_assert!(ASKED_FOR.contains(&attribute), "{attribute} is not kept");
        self.attributes.iter().find(|(name, _)| *name == attribute).map(|(_, value)| value.as_str())
    }
}

/// Most elements that are kept; the description of a host with a thousand cores has some ten thousand.
const ELEMENTS_MAX: usize = 1 << 19;

/// All elements in document order. Text, comments and the document type are passed over; entities beyond those of XML
/// itself are refused, so that nothing expands.
pub(crate) fn elements(text: &str) -> Result<Vec<Element>, TopologyError> {
    let mut reader = Reader::from_str(text);
    let (mut elements, mut open) = (Vec::new(), Vec::new());
    loop {
        let event = reader.read_event().map_err(|error| wrong(text, reader.error_position(), error))?;
        let at = reader.buffer_position();
        match event {
            Event::Start(start) => {
                open.push(elements.len());
                elements.push(element(text, at, &start, open.iter().rev().nth(1).copied())?);
            }
            Event::Empty(start) => elements.push(element(text, at, &start, open.last().copied())?),
            Event::End(_) => {
                open.pop();
            }
            Event::Eof if open.is_empty() => return Ok(elements),
            Event::Eof => return Err(wrong(text, at, format!("the file ends within <{}>", elements[open[open.len() - 1]].name))),
            _ => {}
        }
        if elements.len() > ELEMENTS_MAX {
            return Err(wrong(text, at, format!("more than {ELEMENTS_MAX} elements")));
        }
    }
}

fn element(text: &str, at: u64, start: &BytesStart<'_>, parent: Option<usize>) -> Result<Element, TopologyError> {
    let mut attributes = start.attributes();
    // The check for doubled attributes compares each with all; the first one counts here.
    attributes.with_checks(false);
    let mut kept = Vec::new();
    for attribute in attributes {
        let attribute = attribute.map_err(|error| wrong(text, at, error))?;
        if let Ok(name) = ASKED_FOR.binary_search(&attribute.key.into_inner()) {
            let value = attribute.normalized_value(XmlVersion::default()).map_err(|error| wrong(text, at, error))?;
            kept.push((ASKED_FOR[name], value.into_owned()));
        }
    }
    Ok(Element { name: start.name().into_inner().to_owned(), parent, attributes: kept })
}

fn wrong(text: &str, at: u64, what: impl ToString) -> TopologyError {
    let at = usize::try_from(at).map_or(text.len(), |at| at.min(text.len()));
    TopologyError::Xml { line: 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count(), what: what.to_string() }
}
