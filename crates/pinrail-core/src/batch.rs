//! A batch on paper: what a caller would register, before any memory exists.
//!
//! A batch file (feature `files`) or a shape (`kimi-k3/8`, `48x391MiB`) becomes a [`BatchSpec`]; [`BatchSpec::layout`]
//! places its buffers in allocations; [`Layout::imagined`] gives them addresses only, [`Layout::buffers`] real memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{Access, Buffer, Diagnosis, ErrorKind, Extent, ExtentError, Machine, Memory, Place, RailLimits, size};

/// Buffers and the limits that shall hold for the rails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSpec {
    /// The buffers in the caller's order.
    pub buffers: Vec<BufferSpec>,
    /// Limits by rail name; those of `*` hold for every rail that does not set the same limit itself.
    pub rail_limits: BTreeMap<String, RailLimits>,
}

/// One buffer on paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// Its name, unique in the batch.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// The kind of memory.
    pub place: Place,
    /// Bytes of its pages.
    pub page_size: u64,
    /// The allocation it shares with others; alone in one of its own without.
    pub allocation: Option<String>,
    /// Its address, where that matters.
    pub addr: Option<u64>,
    /// Bytes that no seam may divide.
    pub unit: Option<u64>,
    /// The access to grant.
    pub access: Access,
}

/// Most buffers in a batch.
pub const BUFFERS_MAX: usize = 1 << 20;

/// The page size where none is given, in bytes.
pub const PAGE_SIZE_DEFAULT: u64 = 4096;

/// The shape of a published workload: 182 buffers of one rank of a large model, 14.3 GiB.
const KIMI_K3: [(usize, u64); 4] = [(16, 409_993_216), (96, 90_072_678), (50, 2_925_527), (20, 2_500)];

/// Where addresses begin that nobody named: above what people write by hand.
const ADDRESS_FIRST: u64 = 0x10_0000_0000;

/// A batch that is wrong on paper.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A text that is no shape.
    #[error("{text:?} is no batch shape: {why}")]
    Shape {
        /// The text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// A buffer's extent.
    #[error("buffer {buffer:?}: {source}")]
    Extent {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        source: ExtentError,
    },
    /// A value that no buffer can have.
    #[error("buffer {buffer:?}: {what}")]
    Value {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        what: String,
    },
    /// Two buffers have one name.
    #[error("two buffers are called {buffer:?}")]
    TwoBuffers {
        /// The name.
        buffer: String,
    },
    /// Too many buffers.
    #[error("a batch has at most {max} buffers and this one has {have}")]
    TooMany {
        /// Buffers given.
        have: usize,
        /// The limit.
        max: usize,
    },
    /// A limit for a rail that the machine does not have.
    #[error("rail_limits name rail {rail:?}, which this machine does not have: there are {have}")]
    UnknownRail {
        /// The name.
        rail: String,
        /// The rails there are.
        have: String,
    },
}

impl BatchError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let message = self.to_string();
        match self {
            BatchError::Extent { buffer, source } => {
                let kind = match source {
                    ExtentError::ZeroLength => ErrorKind::ZeroLength,
                    ExtentError::Wrap { .. } => ErrorKind::Wrap,
                    ExtentError::Outside { .. } => ErrorKind::Batch,
                };
                Diagnosis::new(kind, message).buffer(buffer)
            }
            BatchError::Value { buffer, .. } | BatchError::TwoBuffers { buffer } => {
                Diagnosis::new(ErrorKind::Batch, message).buffer(buffer)
            }
            BatchError::UnknownRail { rail, .. } => Diagnosis::new(ErrorKind::UnknownRail, message).rail(rail),
            BatchError::Shape { .. } => {
                Diagnosis::new(ErrorKind::Batch, message).hint("shapes: kimi-k3, kimi-k3/N, COUNTxSIZE as in 48x391MiB")
            }
            BatchError::TooMany { .. } => Diagnosis::new(ErrorKind::Batch, message),
        }
    }
}

impl BufferSpec {
    /// A host buffer of `len` bytes with every default.
    pub fn new(name: impl Into<String>, len: u64) -> BufferSpec {
        BufferSpec {
            name: name.into(),
            len,
            place: Place::Host,
            page_size: PAGE_SIZE_DEFAULT,
            allocation: None,
            addr: None,
            unit: None,
            access: Access::FULL,
        }
    }

    /// The name of a buffer without one.
    #[must_use]
    pub fn default_name(at: usize) -> String {
        format!("buffer{at}")
    }
}

impl BatchSpec {
    /// Reads a shape: `kimi-k3`, `kimi-k3/N` (every size divided by N, rounded up) or `COUNTxSIZE`.
    ///
    /// # Errors
    /// [`BatchError::Shape`], [`BatchError::TooMany`].
    ///
    /// ```
    /// use pinrail_core::batch::BatchSpec;
    /// assert_eq!(BatchSpec::shape("kimi-k3/8")?.buffers.len(), 182);
    /// assert_eq!(BatchSpec::shape("3x2500MiB")?.bytes(), Some(7500 << 20));
    /// # Ok::<(), pinrail_core::batch::BatchError>(())
    /// ```
    pub fn shape(text: &str) -> Result<BatchSpec, BatchError> {
        let wrong = |why: &str| BatchError::Shape { text: text.chars().take(80).collect(), why: why.to_owned() };
        if let Some(divisor) = text.strip_prefix("kimi-k3") {
            let divisor = match divisor.strip_prefix('/') {
                None if divisor.is_empty() => 1,
                Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                    digits.parse().ok().filter(|&n: &u64| n > 0).ok_or_else(|| wrong("the divisor is a whole number from 1"))?
                }
                _ => return Err(wrong("kimi-k3 takes a divisor, as in kimi-k3/8")),
            };
            return Ok(kimi_k3(divisor));
        }
        let (count, len) =
            text.split_once('x').ok_or_else(|| wrong("neither kimi-k3 nor a count and a size with an x between them"))?;
        if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong("the count is a whole number"));
        }
        let count = count.parse::<usize>().map_err(|_| wrong("the count is a whole number in 64 bits"))?;
        if count > BUFFERS_MAX {
            return Err(BatchError::TooMany { have: count, max: BUFFERS_MAX });
        }
        let len = size::parse(len).map_err(|error| wrong(&error.to_string()))?;
        Ok(BatchSpec::of((0..count).map(|at| BufferSpec::new(BufferSpec::default_name(at), len))))
    }

    /// A batch of these buffers without limits of its own.
    #[must_use]
    pub fn of(buffers: impl IntoIterator<Item = BufferSpec>) -> BatchSpec {
        BatchSpec { buffers: buffers.into_iter().collect(), rail_limits: BTreeMap::new() }
    }

    /// All bytes; `None` beyond 64 bits.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.buffers.iter().try_fold(0u64, |sum, buffer| sum.checked_add(buffer.len))
    }

    /// Puts the batch's limits on a machine's rails; of two limits the smaller holds.
    ///
    /// # Errors
    /// [`BatchError::UnknownRail`]; the machine is unchanged then.
    pub fn limit_rails(&self, machine: &mut Machine) -> Result<(), BatchError> {
        let named = |name: &&String| *name != "*" && machine.rails.iter().all(|rail| rail.name != **name);
        if let Some(rail) = self.rail_limits.keys().find(named) {
            return Err(BatchError::UnknownRail { rail: rail.clone(), have: machine.rail_names() });
        }
        for rail in &mut machine.rails {
            let limits = |name: &str| self.rail_limits.get(name).copied().unwrap_or_default();
            rail.limits = rail.limits.least(limits(&rail.name).or(limits("*")));
        }
        Ok(())
    }

    /// Places the buffers in allocations.
    ///
    /// Buffers of one `allocation` without an address follow the one before them, end to end. Buffers without an
    /// allocation have one of their own, page aligned and never adjacent to another.
    ///
    /// # Errors
    /// The first buffer that is wrong, in the caller's order.
    pub fn layout(&self) -> Result<Layout, BatchError> {
        if self.buffers.len() > BUFFERS_MAX {
            return Err(BatchError::TooMany { have: self.buffers.len(), max: BUFFERS_MAX });
        }
        self.check()?;
        let mut layout =
            Layout { specs: self.buffers.clone(), allocations: Vec::new(), at: Vec::with_capacity(self.buffers.len()) };
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        for spec in &self.buffers {
            let fresh = layout.allocations.len();
            let at = spec.allocation.as_deref().map_or(fresh, |name| *by_name.entry(name).or_insert(fresh));
            if at == fresh {
                layout.allocations.push(Allocation::empty(spec));
            }
            let offset = layout.allocations[at].place(spec)?;
            layout.at.push((at, offset));
        }
        layout.settle()?;
        Ok(layout)
    }

    fn check(&self) -> Result<(), BatchError> {
        let mut names = std::collections::BTreeSet::new();
        for spec in &self.buffers {
            let value = |what: String| Err(BatchError::Value { buffer: spec.name.clone(), what });
            if !names.insert(&spec.name) {
                return Err(BatchError::TwoBuffers { buffer: spec.name.clone() });
            }
            if !spec.page_size.is_power_of_two() || !(4096..=1 << 30).contains(&spec.page_size) {
                return value(format!("page_size {} is no power of two from 4096 to 1 GiB", spec.page_size));
            }
            if spec.unit == Some(0) {
                return value("unit is zero; leave it out for none".to_owned());
            }
            Extent::new(spec.addr.unwrap_or(0), spec.len)
                .map_err(|source| BatchError::Extent { buffer: spec.name.clone(), source })?;
        }
        Ok(())
    }
}

/// Buffers placed in allocations.
#[derive(Clone, Debug)]
pub struct Layout {
    specs: Vec<BufferSpec>,
    /// The allocations in the order in which buffers first name them.
    pub allocations: Vec<Allocation>,
    /// By buffer: its allocation, and its address (or its offset where the allocation has no address of its own yet).
    at: Vec<(usize, u64)>,
}

/// One allocation of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The addresses it spans, whole pages.
    pub span: Range<u64>,
    /// Bytes of its pages: the largest that a buffer in it names.
    pub page_size: u64,
    /// The kind of memory: that of its first buffer.
    pub place: Place,
    named: bool,
    next: u64,
}

impl Allocation {
    fn empty(spec: &BufferSpec) -> Allocation {
        let start = spec.addr.unwrap_or(0);
        Allocation { span: start..start, page_size: spec.page_size, place: spec.place, named: spec.addr.is_some(), next: start }
    }

    /// Takes one more buffer in; answers its address.
    fn place(&mut self, spec: &BufferSpec) -> Result<u64, BatchError> {
        let wrong = |what: &str| BatchError::Value { buffer: spec.name.clone(), what: what.to_owned() };
        if spec.place != self.place {
            return Err(wrong("it lies in another kind of memory than its allocation"));
        }
        if spec.addr.is_some() && !self.named {
            return Err(wrong("it has an address and the first buffer of its allocation has none"));
        }
        let addr = spec.addr.unwrap_or(self.next);
        let extent = Extent::new(addr, spec.len).map_err(|source| BatchError::Extent { buffer: spec.name.clone(), source })?;
        self.page_size = self.page_size.max(spec.page_size);
        self.span = self.span.start.min(addr)..self.span.end.max(extent.end());
        self.next = extent.end();
        Ok(addr)
    }
}

impl Layout {
    /// Gives addresses to allocations without, above all that were named, and rounds every span out to whole pages.
    fn settle(&mut self) -> Result<(), BatchError> {
        let first_of = |at: usize, places: &[(usize, u64)]| places.iter().position(|place| place.0 == at).unwrap_or(0);
        let named = self.allocations.iter().filter(|allocation| allocation.named).map(|allocation| allocation.span.end);
        let mut free = named.max().unwrap_or(0).max(ADDRESS_FIRST);
        let mut bases = Vec::with_capacity(self.allocations.len());
        for at in 0..self.allocations.len() {
            let page = self.allocations[at].page_size;
            let span = self.allocations[at].span.clone();
            // One page between two allocations keeps them from being adjacent.
            let base = if self.allocations[at].named { Some(0) } else { free.checked_next_multiple_of(page) };
            let settled = base.and_then(|base| {
                let start = (base + span.start) / page * page;
                Some((base, start..base.checked_add(span.end)?.checked_next_multiple_of(page)?))
            });
            let Some((base, span)) = settled else {
                let buffer = self.specs[first_of(at, &self.at)].name.clone();
                let (start, len) = (base.unwrap_or(free), span.end - span.start);
                return Err(BatchError::Extent { buffer, source: ExtentError::Wrap { start, len } });
            };
            if !self.allocations[at].named {
                free = span.end.saturating_add(page);
            }
            self.allocations[at].span = span;
            bases.push(base);
        }
        for (allocation, addr) in &mut self.at {
            *addr += bases[*allocation];
        }
        Ok(())
    }

    /// The buffers over addresses without bytes.
    ///
    /// # Errors
    /// None that [`BatchSpec::layout`] has not already reported.
    pub fn imagined(&self) -> Result<Vec<Buffer>, BatchError> {
        let imagine =
            |allocation: &Allocation| Memory::imagined(allocation.span.start, allocation.span.end - allocation.span.start);
        let memories = self.allocations.iter().map(imagine).collect::<Result<Vec<_>, _>>();
        self.buffers(&memories.map_err(|source| BatchError::Extent { buffer: String::new(), source })?)
    }

    /// The buffers over real memory: one [`Memory`] for each of [`Layout::allocations`], at least as long.
    ///
    /// # Errors
    /// [`BatchError::Extent`] where a memory is too short.
    ///
    /// # Panics
    /// When there are fewer memories than allocations.
    pub fn buffers(&self, memories: &[Memory]) -> Result<Vec<Buffer>, BatchError> {
        let place = |(spec, &(allocation, addr)): (&BufferSpec, &(usize, u64))| {
            let offset = addr - self.allocations[allocation].span.start;
            let range = offset..offset.saturating_add(spec.len);
            let mut buffer = Buffer::new(spec.name.as_str(), memories[allocation].clone(), range)
                .map_err(|source| BatchError::Extent { buffer: spec.name.clone(), source })?;
            (buffer.place, buffer.page_size) = (spec.place, spec.page_size);
            (buffer.unit, buffer.access) = (spec.unit, spec.access);
            Ok(buffer)
        };
        self.specs.iter().zip(&self.at).map(place).collect()
    }
}

/// The published workload in an order shuffled once and for all.
fn kimi_k3(divisor: u64) -> BatchSpec {
    let mut lens: Vec<u64> = KIMI_K3.iter().flat_map(|&(count, len)| std::iter::repeat_n(len.div_ceil(divisor), count)).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..lens.len()).rev() {
        // xorshift64: any fixed order would do, and this one is the same everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (at as u64 + 1)).unwrap_or(0);
        lens.swap(at, other);
    }
    BatchSpec::of(lens.iter().enumerate().map(|(at, &len)| BufferSpec::new(format!("k3-{at:03}"), len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(buffers: &[(u64, Option<&str>, Option<u64>)]) -> BatchSpec {
        BatchSpec::of(buffers.iter().enumerate().map(|(at, &(len, allocation, addr))| BufferSpec {
            allocation: allocation.map(str::to_owned),
            addr,
            ..BufferSpec::new(BufferSpec::default_name(at), len)
        }))
    }

    fn extents(spec: &BatchSpec) -> Vec<Range<u64>> {
        spec.layout().unwrap().imagined().unwrap().iter().map(|buffer| buffer.extent().range()).collect()
    }

    #[test]
    fn the_published_workload_has_its_sizes_in_a_fixed_shuffled_order() {
        let batch = BatchSpec::shape("kimi-k3").unwrap();
        assert_eq!(batch.buffers.len(), 182);
        assert_eq!(batch.bytes(), Some(16 * 409_993_216 + 96 * 90_072_678 + 50 * 2_925_527 + 20 * 2_500));
        let lens: Vec<u64> = batch.buffers.iter().map(|buffer| buffer.len).collect();
        assert!(!lens.is_sorted() && !lens.iter().rev().is_sorted());
        assert_eq!(BatchSpec::shape("kimi-k3/1").unwrap(), batch);
        assert_eq!(BatchSpec::shape("kimi-k3/8").unwrap().buffers.iter().filter(|buffer| buffer.len == 313).count(), 20);
    }

    #[test]
    fn what_is_no_shape_is_an_error() {
        for text in [
            "",
            "x",
            "3x",
            "x3",
            "-1x4096",
            "3x-1",
            "kimi-k3/0",
            "kimi-k3/",
            "kimi-k3x",
            "kimi-k3/-1",
            "1048577x1",
            "1x18446744073709551616",
            "3 x 4",
        ] {
            assert_eq!(BatchSpec::shape(text).unwrap_err().diagnosis().kind, ErrorKind::Batch, "{text}");
        }
        assert_eq!(BatchSpec::shape("0x4096").unwrap().buffers.len(), 0);
        assert_eq!(BatchSpec::shape("2x0").unwrap().layout().unwrap_err().diagnosis().kind, ErrorKind::ZeroLength);
    }

    #[test]
    fn buffers_of_one_allocation_lie_end_to_end_and_others_never_touch() {
        let seen = extents(&spec(&[(100, Some("a"), None), (5000, None, None), (50, Some("a"), None), (4096, None, None)]));
        assert_eq!(seen[0].end, seen[2].start);
        assert!(seen[1].start.is_multiple_of(4096) && seen[3].start.is_multiple_of(4096));
        assert!(seen[1].start > seen[2].end && seen[3].start > seen[1].end.next_multiple_of(4096));
    }

    #[test]
    fn addresses_are_taken_as_written() {
        let seen = extents(&spec(&[
            (100, Some("a"), Some(0x1234)),
            (10, Some("a"), None),
            (10, Some("a"), Some(0x9000)),
            (7, None, None),
        ]));
        assert_eq!(seen[..3], [0x1234..0x1298, 0x1298..0x12a2, 0x9000..0x900a]);
        assert!(seen[3].start > 0xa000);
    }

    #[test]
    fn what_passes_the_end_of_the_address_space_is_refused() {
        for (batch, buffer) in [
            (spec(&[(4096, None, None), (8192, None, Some(u64::MAX - 4095))]), "buffer1"),
            (spec(&[(u64::MAX, None, None)]), "buffer0"),
            (spec(&[(1 << 63, None, None), (1 << 63, None, None)]), "buffer1"),
            (spec(&[(1 << 63, Some("a"), None), (1 << 63, Some("a"), None)]), "buffer1"),
        ] {
            let diagnosis = batch.layout().unwrap_err().diagnosis();
            assert_eq!((diagnosis.kind, diagnosis.buffer.as_deref()), (ErrorKind::Wrap, Some(buffer)));
        }
    }

    #[test]
    fn impossible_values_name_the_buffer() {
        let of = |change: fn(&mut BufferSpec)| {
            let mut batch = spec(&[(4096, None, None)]);
            change(&mut batch.buffers[0]);
            batch.layout().unwrap_err().diagnosis()
        };
        for page_size in [0u64, 1, 4095, 12288, 1 << 31] {
            let mut batch = spec(&[(4096, None, None)]);
            batch.buffers[0].page_size = page_size;
            assert_eq!(batch.layout().unwrap_err().diagnosis().kind, ErrorKind::Batch, "{page_size}");
        }
        assert_eq!(of(|b| b.unit = Some(0)).buffer.as_deref(), Some("buffer0"));
        let mut twice = spec(&[(1, None, None), (1, None, None)]);
        twice.buffers[1].name = "buffer0".into();
        assert_eq!(twice.layout().unwrap_err(), BatchError::TwoBuffers { buffer: "buffer0".into() });
    }

    #[test]
    fn limits_go_to_the_named_rail_and_to_all_others() {
        let mut batch = spec(&[]);
        batch.rail_limits.insert("*".into(), RailLimits { max_mrs: Some(7), ..RailLimits::default() });
        batch.rail_limits.insert("rail1".into(), RailLimits { max_mr_size: Some(1), ..RailLimits::default() });
        let mut machine = Machine::of_rails(2);
        batch.limit_rails(&mut machine).unwrap();
        assert_eq!(machine.rails[0].limits.max_mrs, Some(7));
        assert_eq!((machine.rails[1].limits.max_mrs, machine.rails[1].limits.max_mr_size), (Some(7), Some(1)));
        batch.rail_limits.insert("rail9".into(), RailLimits::default());
        let unknown = BatchError::UnknownRail { rail: "rail9".into(), have: "rail0, rail1".into() };
        assert_eq!(batch.limit_rails(&mut machine), Err(unknown));
    }

    proptest! {
        #[test]
        fn allocations_hold_their_buffers_and_do_not_touch(lens in prop::collection::vec((1u64..20_000, prop::option::of(0..3u8)), 1..20)) {
            let batch = BatchSpec::of(lens.iter().enumerate().map(|(at, &(len, allocation))| BufferSpec {
                allocation: allocation.map(|name| name.to_string()),
                ..BufferSpec::new(BufferSpec::default_name(at), len)
            }));
            let layout = batch.layout().unwrap();
            let buffers = layout.imagined().unwrap();
            for (buffer, &(len, _)) in buffers.iter().zip(&lens) {
                prop_assert_eq!(buffer.len(), len);
            }
            let mut spans: Vec<_> = layout.allocations.iter().map(|a| a.span.clone()).collect();
            spans.sort_by_key(|span| span.start);
            prop_assert!(spans.windows(2).all(|pair| pair[0].end < pair[1].start));
            let mut all: Vec<_> = buffers.iter().map(|b| b.extent()).collect();
            all.sort();
            prop_assert!(all.windows(2).all(|pair| !pair[0].overlaps(pair[1])));
        }
    }
}
