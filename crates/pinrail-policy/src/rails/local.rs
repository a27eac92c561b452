use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use pinrail_core::{Buffer, Gpu, Machine, NodeId, PathClass, PciAddress, RailId};

use crate::{PolicyError, SelectRails, Selection};

/// Which of the nearest rails a GPU or node gets: what `device-local` and `rail-local` have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// How GPUs share rails that are equally near to them.
    pub share: Share,
    /// Most rails of a buffer, the first in order of preference: `local-max=N`.
    pub max: Option<NonZeroU32>,
}

/// How GPUs that tie for the same rails share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Each GPU gets as many rails of its own as the others. What does not divide evenly is left over; where there are
    /// fewer rails than GPUs each gets one, and no rail serves two GPUs more than another. `share=fair`.
    #[default]
    Fair,
    /// Every GPU gets all of its nearest rails: `share=all`. A GPU alone at work reaches all their bandwidth.
    All,
}

impl Share {
    /// The term in a spec.
    #[must_use]
    pub fn spec(self) -> &'static str {
        match self {
            Share::Fair => "share=fair",
            Share::All => "share=all",
        }
    }
}

impl Local {
    pub(crate) fn spec(self) -> String {
        match self.max {
            Some(max) => format!("local-max={max}+{}", self.share.spec()),
            None => self.share.spec().to_owned(),
        }
    }

    pub(crate) fn with(self, share: Option<Share>, max: Option<NonZeroU32>) -> Local {
        Local { share: share.unwrap_or(self.share), max: max.or(self.max) }
    }

    /// The GPU's share of the rails nearest to it; all usable rails, saying why, where none is known to be near.
    pub(crate) fn near_gpu(
        self,
        policy: &dyn SelectRails,
        pci: PciAddress,
        buffer: &Buffer,
        machine: &Machine,
    ) -> Result<Selection, PolicyError> {
        let all = || Selection::all_usable(policy, buffer, machine);
        if machine.gpus.is_empty() {
            return Ok(all()?.because("the machine lists no GPU"));
        }
        let Some(gpu) = machine.gpu(pci) else {
            let have: Vec<String> = machine.gpus.iter().map(|gpu| gpu.pci.to_string()).collect();
            return Err(PolicyError::UnknownDevice { buffer: buffer.name.to_string(), gpu: pci, have: have.join(", ") });
        };
        match nearest_to_gpu(machine, gpu) {
            None => Ok(all()?.because(format!("no rail's distance to GPU {pci} is known"))),
            // Nothing nearer than another socket is no locality: all rails are equally far.
            Some((PathClass::Sys, _)) => {
                let far = Selection { path: Some(PathClass::Sys), ..all()? };
                Ok(far.because(format!("no rail is on the node of GPU {pci}")))
            }
            Some((class, near)) => {
                let (rails, shared) = match self.share {
                    Share::All => (near, String::new()),
                    Share::Fair => share_of(machine, gpu, class, near),
                };
                Ok(self.first(rails, class, format!("nearest to GPU {pci}: {}{shared}", class.as_str())))
            }
        }
    }

    /// The rails on a node; all usable rails, saying why, where none is known to be there.
    pub(crate) fn near_node(
        self,
        policy: &dyn SelectRails,
        node: NodeId,
        buffer: &Buffer,
        machine: &Machine,
    ) -> Result<Selection, PolicyError> {
        let all = || Selection::all_usable(policy, buffer, machine);
        match nearest(machine, |rail| machine.path_to_node(rail, node)) {
            None => Ok(all()?.because(format!("no rail's distance to {node} is known"))),
            Some((PathClass::Sys, _)) => {
                let far = Selection { path: Some(PathClass::Sys), ..all()? };
                Ok(far.because(format!("no rail is on {node}")))
            }
            Some((class, near)) => Ok(self.first(near, class, format!("on {node}"))),
        }
    }

    fn first(self, mut rails: Vec<RailId>, class: PathClass, mut why: String) -> Selection {
        if let Some(max) = self.max.filter(|max| rails.len() > max.get() as usize) {
            why.push_str(&format!("; the first {max} of {}", rails.len()));
            rails.truncate(max.get() as usize);
        }
        Selection { rails, path: Some(class), why: Cow::Owned(why), fallback: None }
    }
}

/// The share of one GPU, and how it came about.
///
/// GPUs tie when the same rails are nearest to them, in the same class. Rails are dealt out in order of preference to the
/// GPUs in order of their addresses, so that fast rails and ports of one device are spread over the GPUs.
fn share_of(machine: &Machine, gpu: &Gpu, class: PathClass, near: Vec<RailId>) -> (Vec<RailId>, String) {
    let ties = |other: &&Gpu| {
        // The first comparison spares most of the work: a tie has every rail in common.
        machine.path(near[0], other) == Some(class)
            && nearest_to_gpu(machine, other).is_some_and(|(c, n)| (c, &n) == (class, &near))
    };
    let tied: Vec<PciAddress> = machine.gpus.iter().filter(ties).map(|gpu| gpu.pci).collect();
    let rank = tied.iter().filter(|pci| **pci < gpu.pci).count();
    let (rails, gpus) = (near.len(), tied.len());
    match rails / gpus {
        _ if gpus == 1 => (near, String::new()),
        0 => (vec![near[rank % rails]], format!("; {gpus} GPUs share {rails} rails")),
        each => {
            let own = near.into_iter().skip(rank).step_by(gpus).take(each).collect();
            (own, format!("; {each} of {rails}, shared out to {gpus} GPUs"))
        }
    }
}

fn nearest_to_gpu(machine: &Machine, gpu: &Gpu) -> Option<(PathClass, Vec<RailId>)> {
    nearest(machine, |rail| machine.path(rail, gpu))
}

/// The usable rails of the least class among those whose class is known, in order of preference.
fn nearest(machine: &Machine, class: impl Fn(RailId) -> Option<PathClass>) -> Option<(PathClass, Vec<RailId>)> {
    let classes: Vec<(PathClass, RailId)> = machine.usable().filter_map(|rail| Some((class(rail)?, rail))).collect();
    let best = classes.iter().map(|(class, _)| *class).min()?;
    let mut rails = classes.into_iter().filter(|(class, _)| *class == best).map(|(_, rail)| rail).collect();
    sort_by_preference(machine, &mut rails);
    Some((best, rails))
}

/// Fast rails first; of equally fast ones each device's first port before any device's second, since ports of one device
/// share its bandwidth; then by PCI address. The order in which a machine lists its rails plays no part.
fn sort_by_preference(machine: &Machine, rails: &mut Vec<RailId>) {
    let rail = |id: &RailId| &machine.rails[id.index()];
    rails.sort_by(|a, b| {
        let identity = |id| (rail(id).pci.is_none(), rail(id).pci, &rail(id).name);
        identity(a).cmp(&identity(b))
    });
    let mut ports = BTreeMap::new();
    let mut ranked: Vec<_> = rails
        .iter()
        .map(|id| {
            let port = rail(id).card().map_or(0, |card| {
                let seen = ports.entry(card).or_insert(0);
                *seen += 1;
                *seen - 1
            });
            (Reverse(rail(id).mbps), port, *id)
        })
        .collect();
    ranked.sort_by_key(|(mbps, port, _)| (*mbps, *port));
    rails.clear();
    rails.extend(ranked.into_iter().map(|(_, _, id)| id));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RailLocal;
    use crate::testing::strategies::{attachments, machines};
    use pinrail_core::{Memory, Place, Rail};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn gpus_of(machine: &Machine) -> impl Iterator<Item = PciAddress> {
        machine.gpus.iter().map(|gpu| gpu.pci)
    }

    fn select(local: Local, machine: &Machine, gpu: PciAddress) -> Selection {
        let buffer = Buffer::new("b", Memory::imagined(4096, 4096).unwrap(), 0..4096).unwrap().with_place(Place::Gpu(gpu));
        RailLocal(local).select(&buffer, machine).unwrap()
    }

    fn names(machine: &Machine, rails: &[RailId]) -> Vec<String> {
        rails.iter().map(|rail| machine.rails[rail.index()].name.clone()).collect()
    }

    /// One switch with these rails (at PCI addresses, of a speed) and this many GPUs.
    fn one_switch(rails: &[(&str, u64)], gpus: u8) -> Machine {
        let bridges = vec!["hb".to_owned(), "sw".to_owned()];
        let rail = |(pci, mbps): &(&str, u64)| Rail {
            pci: Some(pci.parse().unwrap()),
            mbps: Some(*mbps),
            bridges: bridges.clone(),
            ..Rail::named(*pci)
        };
        let gpu = |at| Gpu { pci: PciAddress::new(0, 0x80 + at, 0, 0).unwrap(), node: None, bridges: bridges.clone() };
        Machine { rails: rails.iter().map(rail).collect(), gpus: (0..gpus).map(gpu).collect(), ..Machine::default() }
    }

    fn shares(machine: &Machine, local: Local) -> Vec<Vec<String>> {
        gpus_of(machine).map(|gpu| names(machine, &select(local, machine, gpu).rails)).collect()
    }

    #[test]
    fn rails_are_dealt_out_fast_ones_first_and_ports_of_one_device_to_one_gpu() {
        let machine =
            one_switch(&[("2:0.1", 100), ("1:0.0", 100), ("2:0.0", 100), ("3:0.0", 400), ("1:0.1", 100), ("4:0.0", 400)], 2);
        assert_eq!(shares(&machine, Local::default()), [["3:0.0", "1:0.0", "1:0.1"], ["4:0.0", "2:0.0", "2:0.1"]]);
        let one = Local { max: NonZeroU32::new(1), ..Local::default() };
        assert_eq!(shares(&machine, one), [["3:0.0"], ["4:0.0"]]);
        let all = shares(&machine, Local { share: Share::All, max: None });
        assert_eq!(all[0], ["3:0.0", "4:0.0", "1:0.0", "2:0.0", "1:0.1", "2:0.1"]);
        assert_eq!(all[0], all[1]);
    }

    #[test]
    fn fewer_rails_than_gpus_are_shared_evenly() {
        assert_eq!(
            shares(&one_switch(&[("1:0.0", 1), ("2:0.0", 1)], 4), Local::default()),
            [["1:0.0"], ["2:0.0"], ["1:0.0"], ["2:0.0"]]
        );
        assert_eq!(shares(&one_switch(&[("1:0.0", 1)], 8), Local::default()), [["1:0.0"]; 8]);
    }

    #[test]
    fn the_reason_says_how_a_share_came_about() {
        let machine = one_switch(&[("1:0.0", 1), ("2:0.0", 1), ("3:0.0", 1)], 2);
        let local = Local::default();
        assert_eq!(
            select(local, &machine, machine.gpus[1].pci).why,
            "nearest to GPU 0000:81:00.0: PIX; 1 of 3, shared out to 2 GPUs"
        );
        let max = Local { share: Share::All, max: NonZeroU32::new(2) };
        assert_eq!(select(max, &machine, machine.gpus[1].pci).why, "nearest to GPU 0000:81:00.0: PIX; the first 2 of 3");
        // What leaves nothing out needs no words.
        let all = Local { share: Share::All, max: NonZeroU32::new(3) };
        assert_eq!(select(all, &machine, machine.gpus[1].pci).why, "nearest to GPU 0000:81:00.0: PIX");
        let alone = one_switch(&[("1:0.0", 1), ("2:0.0", 1)], 1);
        assert_eq!(select(local, &alone, alone.gpus[0].pci).why, "nearest to GPU 0000:80:00.0: PIX");
    }

    #[test]
    fn a_rail_without_an_address_comes_after_the_first_ports_of_those_with_one() {
        let mut machine = one_switch(&[("1:0.1", 1), ("1:0.0", 1)], 1);
        machine.rails.insert(0, Rail { pci: None, name: "soft".to_owned(), ..machine.rails[0].clone() });
        assert_eq!(shares(&machine, Local::default()), [["1:0.0", "soft", "1:0.1"]]);
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error_naming_those_that_are() {
        let buffer = Buffer::new("b", Memory::imagined(4096, 4096).unwrap(), 0..4096).unwrap();
        let buffer = buffer.with_place(Place::Gpu("99:0.0".parse().unwrap()));
        let error = RailLocal::default().select(&buffer, &one_switch(&[("1:0.0", 1)], 2)).unwrap_err();
        assert_eq!(error.to_string(), "buffer \"b\" lies in GPU 0000:99:00.0; this machine has 0000:80:00.0, 0000:81:00.0");
        assert_eq!(error.diagnosis().kind.as_str(), "unknown-device");
        let blind = RailLocal::default().select(&buffer, &Machine::of_rails(2)).unwrap();
        assert_eq!((blind.rails.len(), blind.fallback.as_deref()), (2, Some("the machine lists no GPU")));
    }

    proptest! {
        #[test]
        fn every_gpu_has_a_rail_if_any_is_usable(machine in machines(), max in proptest::option::of(1u32..3)) {
            prop_assume!(machine.usable().next().is_some());
            for share in [Share::Fair, Share::All] {
                let local = Local { share, max: max.and_then(NonZeroU32::new) };
                for gpu in gpus_of(&machine) {
                    let selection = select(local, &machine, gpu);
                    let distinct: BTreeSet<_> = selection.rails.iter().collect();
                    prop_assert!(!selection.rails.is_empty() && distinct.len() == selection.rails.len());
                    prop_assert!(selection.rails.iter().all(|rail| machine.usable().any(|usable| usable == *rail)));
                    if selection.fallback.is_none() && let Some(max) = max {
                        prop_assert!(selection.rails.len() <= max as usize);
                    }
                }
            }
        }

        #[test]
        fn the_order_of_enumeration_changes_nothing((machine, rails, gpus) in machines().prop_flat_map(|machine| {
            let (rails, gpus) = (machine.rails.clone(), machine.gpus.clone());
            (Just(machine), Just(rails).prop_shuffle(), Just(gpus).prop_shuffle())
        })) {
            prop_assume!(machine.usable().next().is_some());
            let shuffled = Machine { rails, gpus, ..Machine::default() };
            for gpu in gpus_of(&machine) {
                let (a, b) = (select(Local::default(), &machine, gpu), select(Local::default(), &shuffled, gpu));
                let (mut left, mut right) = (names(&machine, &a.rails), names(&shuffled, &b.rails));
                if a.fallback.is_some() {
                    // All usable rails are answered in the machine's own order.
                    left.sort();
                    right.sort();
                }
                prop_assert_eq!((left, a.path, a.why, a.fallback), (right, b.path, b.why, b.fallback));
            }
        }

        #[test]
        fn shares_are_fair(machine in machines()) {
            prop_assume!(machine.usable().next().is_some());
            // GPUs by what is nearest to each, which `share=all` answers.
            let mut ties: BTreeMap<(PathClass, BTreeSet<RailId>), Vec<Vec<RailId>>> = BTreeMap::new();
            for gpu in gpus_of(&machine) {
                let all = select(Local { share: Share::All, max: None }, &machine, gpu);
                if all.fallback.is_none() {
                    let own = select(Local::default(), &machine, gpu).rails;
                    ties.entry((all.path.unwrap(), all.rails.into_iter().collect())).or_default().push(own);
                }
            }
            for ((_, near), shares) in ties {
                let load = |rail: &RailId| shares.iter().flatten().filter(|own| *own == rail).count();
                prop_assert!(shares.iter().flatten().all(|rail| near.contains(rail)));
                if near.len() >= shares.len() {
                    prop_assert!(shares.iter().all(|own| own.len() == near.len() / shares.len()), "equal: {:?}", shares);
                    prop_assert!(near.iter().all(|rail| load(rail) <= 1), "disjoint: {:?}", shares);
                } else {
                    let loads: Vec<usize> = near.iter().map(load).collect();
                    prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "even: {:?}", shares);
                }
            }
        }

        #[test]
        fn a_far_rail_changes_no_near_answer(machine in machines(), (node, bridges) in attachments(), mbps in 0u64..9) {
            prop_assume!(machine.usable().next().is_some());
            let mut larger = machine.clone();
            larger.rails.push(Rail { node, bridges, mbps: Some(mbps), ..Rail::named("far") });
            let far = RailId(u16::try_from(machine.rails.len()).unwrap());
            for gpu in &machine.gpus {
                let before = select(Local::default(), &machine, gpu.pci);
                if before.fallback.is_none() && larger.path(far, gpu) > before.path {
                    prop_assert_eq!(select(Local::default(), &larger, gpu.pci), before);
                }
            }
        }
    }
}
