//! Scenarios: what they answer, and what they refuse.

use pinrail_sim::{Error, Run, Scenario, verdict};

fn runs(name: &str, settings: &[&str], policies: &[&str], seed: u64) -> Result<Vec<Run>, Error> {
    let scenario = settings.iter().try_fold(Scenario::named(name)?, |scenario, setting| scenario.set(setting))?;
    let named: Vec<String> = policies.iter().map(|spec| (*spec).to_owned()).collect();
    scenario.run(&scenario.policies(&named)?, seed, &|name| Err(format!("{name} is not there")))
}

fn total_s(name: &str, settings: &[&str], policy: &str) -> f64 {
    runs(name, settings, &[policy], 1).expect("a scenario that runs")[0].total_s
}

#[test]
fn the_same_seed_is_the_same_trace_and_it_is_the_one_of_every_machine() {
    let hash = |seed| {
        runs("p5-k3", &["batch=kimi-k3/64", "processes=2"], &["all-rails+rails-in-series+capped=16"], seed).unwrap()[0].trace_hash
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    assert_eq!(hash(1), TRACE, "debug and release, on any machine: {:#x}", hash(1));
}

const TRACE: u64 = 0x9099_499e_bfcc_93b9;

#[test]
fn policies_come_under_every_profile_in_order() {
    let runs = runs("p5-k3-local", &["batch=4x1MiB"], &["capped=1", "capped=2"], 1).unwrap();
    let order: Vec<_> = runs.iter().map(|run| (run.name.as_str(), run.profile.as_str())).collect();
    assert_eq!(
        order,
        [("capped=1", "efa-p5/joint"), ("capped=1", "efa-p5/flat"), ("capped=2", "efa-p5/joint"), ("capped=2", "efa-p5/flat")]
    );
}

#[test]
fn where_the_readings_disagree_nothing_is_decided() {
    let series = "all-rails+rails-in-series+";
    let of = |policies: &[String]| {
        let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
        verdict(&runs("p5-k3", &[], &policies, 1).unwrap()).unwrap()
    };
    let caps = of(&[format!("{series}unbounded"), format!("{series}ascending+capped=16")]);
    assert!(caps.decided && caps.best[0].policies == [format!("{series}ascending+capped=16")]);
    let orders = of(&[format!("{series}ascending+capped=16"), format!("{series}descending+capped=8")]);
    assert_eq!(orders.best[0].policies, [format!("{series}ascending+capped=16")]);
    let order = of(&[format!("{series}capped=16+ascending"), format!("{series}capped=16")]);
    assert!(!order.safe.is_empty());
    if let Some(decides) = &order.decides {
        assert_eq!(decides.says.len(), 2);
    }
}

#[test]
fn memory_that_nobody_touched_is_prefaulted_by_default_and_that_pays() {
    let of = |policy| total_s("rdma-500g-untouched", &[], policy);
    let (series, parallel) = (of("rails-in-series+capped=1+no-prefault"), of("rails-in-parallel+unbounded+no-prefault"));
    assert!((4.0..7.0).contains(&(parallel / series)) && of("") < series);
}

#[test]
fn fewer_allocations_are_fewer_registrations_and_that_is_said() {
    let run = &runs("p5-k3", &["allocations=17"], &["all-rails+rails-in-series+capped=16"], 1).unwrap()[0];
    assert!(run.assumed_allocations == Some(17) && run.mrs_per_rail == 17 && run.total_s < 8.0, "{run:?}");
}

#[test]
fn a_node_wide_budget_is_about_as_good_as_a_share_for_each() {
    let share = total_s("p5-k3", &[], "all-rails+rails-in-series+capped=24");
    let shared = total_s("p5-k3", &["node_budget=192"], "all-rails+rails-in-series+unbounded");
    assert!((0.7..1.3).contains(&(shared / share)), "{shared} {share}");
}

#[test]
fn what_a_profile_has_no_figures_for_is_refused_by_name() {
    for (name, settings, why) in [
        ("p5-k3", &["profile=rdma-host"][..], "host memory"),
        ("rdma-500g-touched", &["profile=efa-p5/joint"], "device memory"),
        ("rdma-500g-touched", &["page_size=2MiB"], "huge pages"),
        ("rdma-500g-touched", &["memory=device"], "no GPU"),
        ("rdma-500g-touched", &["rails=4096", "batch=100000x1GiB"], "steps"),
        ("host32-rails", &["batch=1x4GiB", "rails=1", "machine=ring", "batch=20000x1MiB", "memory=resident"], "16384"),
    ] {
        let error = runs(name, settings, &[], 1).unwrap_err().to_string();
        assert!(error.contains(why), "{name} {settings:?}: {error}");
    }
}
