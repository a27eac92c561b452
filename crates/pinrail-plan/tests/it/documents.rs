//! Plans as data: read back, compared, run later; and what is refused.

use pinrail_core::batch::BatchSpec;
use pinrail_core::{ErrorKind, Machine};
use pinrail_plan::testing::strategies;
use pinrail_plan::{MemlockSeen, Plan, PlanDocument, PlanError, PlanFileError, What};
use pinrail_policy::Coverage;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{P, batch, neighbours, plan, policy};

const SEEN: MemlockSeen = MemlockSeen { have_bytes: None };

fn document(batch: &BatchSpec, machine: &Machine, spec: &str) -> PlanDocument {
    PlanDocument::of(&plan(batch, machine, spec).unwrap(), batch, machine, SEEN)
}

fn read(value: &Value) -> Result<PlanDocument, PlanFileError> {
    PlanDocument::from_json(&value.to_string())
}

fn planned(document: &PlanDocument) -> Result<Plan, PlanFileError> {
    document.plan(document.batch().layout().unwrap().imagined().unwrap())
}

/// A batch of each kind of thing, on rails with limits.
fn some() -> PlanDocument {
    let mut batch = neighbours(&[(3 * P, 0), (P, 0), (5 * P, 64)]);
    batch.rail_limits.insert("*".into(), pinrail_core::RailLimits { max_mr_size: Some(2 * P), ..Default::default() });
    let mut machine = Machine::of_rails(2);
    machine.rails[1].limits.max_mr_size = Some(100 * P);
    document(&batch, &machine, "ascending+capped=3")
}

#[test]
fn limits_are_shown_beside_what_the_rail_says_of_itself() {
    let value = some().to_json_value();
    let rail = &value["machine"]["rails"][1];
    assert_eq!((&rail["limits"]["max_mr_size"], &rail["advertised"]["max_mr_size"]), (&json!(2 * P), &json!(100 * P)));
    // A limit that is written for a rail never widens what it says of itself.
    let mut batch = batch(&[P]);
    batch.rail_limits.insert("rail0".into(), pinrail_core::RailLimits { max_mr_size: Some(4 << 30), ..Default::default() });
    let mut machine = Machine::of_rails(1);
    machine.rails[0].limits.max_mr_size = Some(2 << 30);
    let value = document(&batch, &machine, "").to_json_value();
    assert_eq!(value["machine"]["rails"][0]["limits"]["max_mr_size"], json!(2u64 << 30));
    assert_eq!(value["batch"]["rail_limits"]["rail0"]["max_mr_size"], json!(4u64 << 30), "and what was written is shown too");
}

#[test]
fn a_plan_reads_back_and_is_the_same_plan() {
    let written = some();
    let read = read(&written.to_json_value()).unwrap();
    assert_eq!(read, written);
    let plan = planned(&read).unwrap();
    assert_eq!(PlanDocument::of(&plan, read.batch(), read.machine(), SEEN), written);
    assert!(written.changes_since(&read).is_empty());
}

#[test]
fn whatever_is_changed_in_a_plan_is_found() {
    let whole = some().to_json_value();
    let mut changed = 0;
    // Every number, every list of rails, every text of the plan proper, one at a time.
    for pointer in pointers(&whole) {
        let mut value = whole.clone();
        let at = value.pointer_mut(&pointer).unwrap();
        *at = match at.take() {
            Value::Number(n) => json!(n.as_u64().map_or(1, |n| n + 1)),
            Value::String(text) => json!(format!("{text}x")),
            Value::Array(mut list) => {
                list.pop();
                Value::Array(list)
            }
            _ => continue,
        };
        changed += 1;
        let accepted = read(&value).and_then(|document| planned_or_refused(&document));
        assert!(accepted.is_err(), "{pointer} was changed and nobody noticed");
        assert_eq!(accepted.unwrap_err().diagnosis().kind, ErrorKind::Batch, "{pointer}");
    }
    assert!(changed > 60, "{changed}");
}

/// What [`planned`] answers, where the batch can still be laid out.
fn planned_or_refused(document: &PlanDocument) -> Result<Plan, PlanFileError> {
    let buffers = document.batch().layout().and_then(|layout| layout.imagined());
    document.plan(buffers.map_err(|error| PlanFileError::Plan(PlanError::Batch(error)))?)
}

/// Every value below the parts that follow from batch, machine and policy.
fn pointers(whole: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo: Vec<String> =
        ["chunks", "tasks", "order", "rails", "buffers", "needs/pinned_bytes", "needs/mrs", "needs/pages", "limits"]
            .map(|part| format!("/{part}"))
            .to_vec();
    while let Some(pointer) = todo.pop() {
        match whole.pointer(&pointer).unwrap() {
            // What was live beside it is a cause, not what follows from one.
            Value::Object(object) => {
                todo.extend(object.keys().filter(|key| *key != "live").map(|key| format!("{pointer}/{key}")));
            }
            Value::Array(list) => {
                todo.extend((0..list.len()).map(|at| format!("{pointer}/{at}")));
                if !list.is_empty() {
                    found.push(pointer);
                }
            }
            _ => found.push(pointer),
        }
    }
    found
}

#[test]
fn what_is_no_plan_says_what_is_wrong() {
    let whole = some().to_json_value();
    let with = |key: &str, value: Value| {
        let mut changed = whole.clone();
        changed[key] = value;
        changed.to_string()
    };
    for (text, part) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid length 0"),
        ("{}".to_owned(), "names no version"),
        (r#"{"buffers":[{"len":4096}]}"#.to_owned(), "names no version"),
        (with("version", json!(2)), "is of version 2"),
        (with("version", json!("1")), "is of version \"1\""),
        (with("chunks", json!({})), "invalid type"),
        (with("surplus", json!(1)), "unknown field `surplus`"),
        (with("batch", json!({"buffers": [{"len": -1}]})), "batch file"),
        (
            with("machine", json!({"rails": [], "mbps": null, "file": {"version": 1, "rail": [{"name": "a"}, {"name": "a"}]}})),
            "two rails",
        ),
        (whole.to_string()[..300].to_owned(), "EOF"),
    ] {
        let refused = PlanDocument::from_json(&text).unwrap_err();
        assert!(refused.to_string().contains(part), "{text}: {refused}");
        assert_eq!(refused.diagnosis().kind, ErrorKind::Batch);
    }
    let refused = planned(&read(&serde_json::from_str(&with("policy", json!("fastest"))).unwrap()).unwrap()).unwrap_err();
    assert!(matches!(refused, PlanFileError::Policy(_)), "{refused}");
}

#[test]
fn what_has_changed_is_said_by_kind_and_name() {
    let changes = |later: &PlanDocument, earlier: &PlanDocument| {
        later.changes_since(earlier).into_iter().map(|change| (change.what, change.of.unwrap_or_default())).collect::<Vec<_>>()
    };
    let (two, lens) = (Machine::of_rails(2), [3 * P, P, 2 * P]);
    let base = document(&batch(&lens), &two, "");
    assert_eq!(changes(&base, &base), []);

    let ordered = document(&batch(&lens), &two, "ascending");
    assert_eq!(changes(&ordered, &base), [(What::Policy, String::new()), (What::Order, String::new())]);
    assert_eq!(ordered.changes_since(&base)[0].to_string(), "policy: caller-order → ascending");
    assert_eq!(ordered.changes_since(&base)[1].after, json!(["buffer1@0x0", "buffer2@0x0", "buffer0@0x0"]));

    let mut cut = batch(&lens);
    cut.rail_limits.insert("*".into(), pinrail_core::RailLimits { max_mr_size: Some(2 * P), ..Default::default() });
    let cut = document(&cut, &two, "");
    let seen = cut.changes_since(&base);
    let named = |what: What| seen.iter().filter(|change| change.what == what).map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(named(What::Limit), ["limit rail0 max_mr_size: none → 8192", "limit rail1 max_mr_size: none → 8192"]);
    assert_eq!(named(What::Seams), ["seams buffer0: 1 chunk of 12 KiB at 0x0 → 2 chunks of at most 8 KiB"]);
    assert_eq!(named(What::Need), ["need rail0 registrations: 3 → 4", "need rail1 registrations: 3 → 4"]);
    assert!(named(What::Rails).is_empty() && named(What::Order).is_empty());

    let fewer = document(&batch(&lens), &two, "rails=rail1");
    assert!(changes(&fewer, &base).contains(&(What::Rails, "buffer2".to_owned())));
    let mut longer = batch(&[3 * P, P, 9 * P, P]);
    longer.buffers[0].unit = Some(P);
    let longer = document(&longer, &Machine::of_rails(3), "");
    let texts: Vec<String> = longer.changes_since(&base).iter().map(ToString::to_string).collect();
    for text in
        ["buffer buffer0: unit none → 4096", "buffer buffer2: len 8192 → 36864", "buffer buffer3: new", "machine rail2: new"]
    {
        assert!(texts.iter().any(|seen| seen == text), "{text}: {texts:?}");
    }
    assert!(base.changes_since(&longer).iter().any(|change| change.to_string() == "buffer buffer3: gone"));
}

#[test]
fn a_plan_is_run_only_where_its_rails_are_and_its_chunks_fit() {
    let made_for = Machine::of_rails(2);
    let made = || plan(&batch(&[8 * P, P]), &made_for, "").unwrap();
    let on = |change: &dyn Fn(&mut Machine)| {
        let mut here = made_for.clone();
        change(&mut here);
        made().on(&here)
    };
    let kind = |change: &dyn Fn(&mut Machine)| on(change).unwrap_err().diagnosis().kind;
    // What a backend says when it is opened is not another machine.
    let opened = on(&|here| here.rails.iter_mut().for_each(|rail| rail.pins = pinrail_core::PinsCounted::User)).unwrap();
    assert_eq!((opened.needs().memlock_user_bytes, opened.chunks()), (2 * 9 * P, made().chunks()));
    assert_eq!(kind(&|here| drop(here.rails.pop())), ErrorKind::UnknownRail);
    assert_eq!(kind(&|here| here.rails.reverse()), ErrorKind::UnknownRail);
    assert_eq!(kind(&|here| here.rails[1].limits.max_mr_size = Some(4 * P)), ErrorKind::MrSize);
    assert_eq!(kind(&|here| here.rails[1].limits.max_mrs = Some(1)), ErrorKind::MrCount);
    assert_eq!(kind(&|here| here.rails[0].limits.max_pages = Some(8)), ErrorKind::PageBudget);
    assert_eq!(kind(&|here| here.rails[0].access = pinrail_core::Access::empty()), ErrorKind::Access);
    let mut elsewhere = made_for.clone();
    elsewhere.rails[1].pci = Some("4f:00.0".parse().unwrap());
    let there = plan(&batch(&[P]), &elsewhere, "").unwrap();
    elsewhere.rails[1].pci = Some("50:00.0".parse().unwrap());
    let refused = there.on(&elsewhere).unwrap_err();
    assert_eq!(refused.to_string(), "the plan is for rail \"rail1\" at 0000:4f:00.0 and this machine has it at 0000:50:00.0");
}

#[test]
fn what_an_earlier_plan_holds_goes_by_the_rails_names() {
    let first = document(&batch(&[3 * P]), &Machine::of_rails(2), "rails=rail1");
    let mut other = Machine::of_rails(3);
    other.rails.swap(0, 1);
    let used: Vec<u64> = first.used_on(&other).iter().map(|rail| rail.pages).collect();
    assert_eq!(used, [3, 0, 0]);
    let live = first.used_on(&Machine::of_rails(2));
    let second = batch(&[P]);
    let beside = Plan::beside(second.layout().unwrap().imagined().unwrap(), &Machine::of_rails(2), &policy(""), &live).unwrap();
    let document = PlanDocument::of(&beside, &second, &Machine::of_rails(2), SEEN);
    assert_eq!(planned(&document).unwrap().live(), &live[..], "and is part of the plan");
}

proptest! {
    #[test]
    fn every_plan_is_one_that_its_own_document_leads_to(lens in proptest::collection::vec(1u64..200_000, 1..12), policy in strategies::policies(), max in 1u64..60, entries in 1u64..400) {
        let mut spec = batch(&lens);
        spec.rail_limits.insert("*".into(), pinrail_core::RailLimits { max_mr_size: Some(max * P), max_pages: Some(entries), ..Default::default() });
        let mut machine = Machine::of_rails(4);
        spec.limit_rails(&mut machine).unwrap();
        let Ok(plan) = Plan::new(spec.layout().unwrap().imagined().unwrap(), &machine, &policy) else { return Ok(()) };
        let document = PlanDocument::of(&plan, &spec, &Machine::of_rails(4), SEEN);
        let again = read(&document.to_json_value()).unwrap();
        prop_assert_eq!(&again, &document);
        let planned = planned(&again).unwrap();
        prop_assert!(planned.chunks() == plan.chunks() && planned.order().eq(plan.order()));
        prop_assert!(plan.shared_out().is_none() || policy.coverage == Coverage::Disjoint);
    }
}
