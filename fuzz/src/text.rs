//! Whatever people write into files and onto command lines.

use std::num::NonZeroU32;

use pinrail_core::batch::{BUFFERS_MAX, BatchSpec};
use pinrail_core::descriptor::{Descriptor, RAILS_MAX};
use pinrail_core::{ErrorKind, Extent, Machine};
use pinrail_plan::PlanDocument;
use pinrail_plan::testing::check_plan;
use pinrail_policy::Policy;

/// A policy spec: what is read prints, resolved, as a spec that reads back to itself; all else is a policy error with the
/// choices there are.
///
/// # Panics
/// Where that is not so.
pub fn policy_spec(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let base = Policy::new(NonZeroU32::MIN);
    match base.clone().with(text) {
        Ok(policy) => {
            let resolved = policy.spec();
            let again = base.with(&resolved).unwrap_or_else(|error| panic!("{resolved:?}: {error}"));
            assert_eq!(again.spec(), resolved);
        }
        Err(error) => {
            let diagnosis = error.diagnosis();
            assert_eq!(diagnosis.kind, ErrorKind::Policy);
            assert!(diagnosis.hint.is_some_and(|hint| hint.contains("ascending")));
            // Two terms of 80 characters, each escaped in up to ten.
            assert!(diagnosis.message.len() < 2000, "an error repeats all of a long text");
        }
    }
}

/// A batch file: what is read is written as a file that reads back the same; what can be laid out lies in its
/// allocations, which do not touch, at the addresses that were written.
///
/// # Panics
/// Where that is not so.
pub fn batch_json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(batch) = BatchSpec::shape(text) {
        assert!(batch.buffers.len() <= BUFFERS_MAX);
    }
    let batch = match BatchSpec::from_json(text) {
        Ok(batch) => batch,
        Err(error) => return assert_eq!(error.diagnosis().kind, ErrorKind::Batch),
    };
    for written in [batch.to_json(), batch.to_json_value().to_string()] {
        assert_eq!(BatchSpec::from_json(&written).as_ref(), Ok(&batch), "{written}");
    }
    let layout = match batch.layout() {
        Ok(layout) => layout,
        Err(error) => return drop(error.diagnosis()),
    };
    let buffers = layout.imagined().expect("a layout has places for its buffers");
    for (spec, buffer) in batch.buffers.iter().zip(&buffers) {
        assert_eq!((buffer.len(), &*buffer.name), (spec.len, spec.name.as_str()));
        assert!(spec.addr.is_none_or(|addr| buffer.extent().start() == addr), "{spec:?} lies at {:?}", buffer.extent());
    }
    let mut invented: Vec<_> = layout.allocations.iter().map(|allocation| allocation.span.clone()).collect();
    invented.sort_by_key(|span| span.start);
    let named = batch.buffers.iter().any(|spec| spec.addr.is_some());
    assert!(named || invented.windows(2).all(|pair| pair[0].end < pair[1].start), "allocations touch: {invented:?}");
}

/// A machine file: what is read is a machine without contradictions, and is written as a file that reads back the same.
///
/// # Panics
/// Where that is not so.
pub fn machine_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(machine) = Machine::from_toml(text) {
        assert_eq!(machine.check(), Ok(()));
        let written = machine.to_toml();
        assert_eq!(Machine::from_toml(&written).as_ref(), Ok(&machine), "{written}");
    }
}

/// What a peer sent: what is read is written as a text that reads back the same; whatever has a key is found by rail and
/// address, and nothing else is.
///
/// # Panics
/// Where that is not so.
pub fn descriptor_json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(descriptor) = Descriptor::from_json(text) else { return };
    let written = descriptor.to_json();
    assert_eq!(Descriptor::from_json(&written).as_ref(), Ok(&descriptor), "{written}");
    assert!(descriptor.rails().len() <= RAILS_MAX);
    for (at, name) in descriptor.rails().iter().enumerate() {
        let rail = descriptor.rail(name).expect("it is one of them");
        let mut end = 0;
        for range in descriptor.ranges() {
            assert!(range.extent.start() >= end, "{:?} overlaps with the one before", range.extent);
            for address in [range.extent.start(), range.extent.end() - 1] {
                let one = Extent::new(address, 1).expect("inside of a range");
                let found = rail.range(one).ok().map(|pieces| (pieces[0].key, pieces[0].at));
                let wanted = range.keys[at].as_deref().map(|key| (key, range.at + (address - range.extent.start())));
                assert_eq!(found, wanted, "{address:#x} on {name:?}");
            }
            let gap = Extent::new(end, range.extent.start() - end);
            assert!(gap.is_err() || rail.range(gap.expect("it is one")).is_err(), "before {:?}", range.extent);
            end = range.extent.end();
        }
    }
}

/// A plan file: what is read is written as a file that reads back the same; what is accepted is a plan that keeps every
/// promise and runs on the machine it was made for; all else is an error of its batch.
///
/// # Panics
/// Where that is not so.
pub fn plan_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let document = match PlanDocument::from_json(text) {
        Ok(document) => document,
        Err(error) => return assert_eq!(error.diagnosis().kind, ErrorKind::Batch),
    };
    let written = document.to_json_value().to_string();
    assert_eq!(PlanDocument::from_json(&written).as_ref(), Ok(&document), "{written}");
    assert_eq!(document.changes_since(&document), []);
    let mut machine = document.machine().clone();
    let Ok(()) = document.batch().limit_rails(&mut machine) else { return };
    // A pool that is cut into millions of pieces is right and takes too long here.
    let shortest = machine.rails.iter().filter_map(|rail| rail.limits.max_mr_size).min().unwrap_or(u64::MAX);
    let Some(true) = document.batch().bytes().map(|bytes| bytes / shortest < 100_000) else { return };
    let Ok(buffers) = document.batch().layout().and_then(|layout| layout.imagined()) else { return };
    match document.plan(buffers) {
        Ok(plan) => check_plan(&plan.on(&machine).expect("it was made for this machine")),
        Err(error) => assert_eq!(error.diagnosis().kind, ErrorKind::Batch),
    }
}
