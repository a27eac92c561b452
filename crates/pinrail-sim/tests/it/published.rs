//! The promises of docs/SIMULATION.md.

use pinrail_sim::{fidelity, markdown};

#[test]
fn every_promise_is_kept_and_the_document_says_so() {
    let rows = fidelity().unwrap();
    let broken: Vec<String> = rows
        .iter()
        .filter(|row| row.kept() == Some(false))
        .map(|row| format!("{}, {}: published {:?}, ours {:?}", row.table, row.what, row.published, row.ours))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(rows.iter().filter(|row| row.kept().is_some()).count() > 40);
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SIMULATION.md")).unwrap();
    assert!(document.contains(&markdown(&rows)), "docs/SIMULATION.md is behind: cargo xtask fidelity writes it");
}

#[test]
fn both_readings_agree_on_what_was_measured_one_by_one() {
    for row in fidelity().unwrap().iter().filter(|row| row.table == "P2" && row.ours.len() == 2) {
        assert!((row.ours[0].1 / row.ours[1].1 - 1.0).abs() < 0.01, "{}: {:?}", row.what, row.ours);
    }
}
