//! How long the rings' tables are: as long as the workload can need, since the kernel walks all of a table for every huge
//! page that it pins.

use std::num::NonZeroU32;

use pinrail_core::Machine;
use pinrail_plan::Plan;
use pinrail_policy::{AllRails, Coalescing, Policy};
use pinrail_uring::Uring;

use super::Workload;

/// Sets each rail's `max_mrs` to the most registrations it may see: by any of the policies, or each buffer by itself on
/// every rail, which is what becomes of a shared registration that is refused. Where that cannot be planned the rails stay
/// as they are, and whoever plans for real says why.
pub(super) fn size_tables(machine: &mut Machine, workload: &Workload<'_>) {
    let mut limited = machine.clone();
    limited.rails.iter_mut().for_each(|rail| rail.limits = rail.limits.least(Uring::LIMITS));
    let apart = Policy { rails: std::sync::Arc::new(AllRails), coalescing: Coalescing::None, ..Policy::new(NonZeroU32::MIN) };
    let Ok(()) = workload.batch.limit_rails(&mut limited) else { return };
    let Ok(buffers) = workload.batch.layout().and_then(|layout| layout.imagined()) else { return };
    let needs = |policy: &Policy| Plan::new(buffers.clone(), &limited, policy).map(|plan| plan.needs().clone());
    let Ok(most) = needs(&apart) else { return };
    let mut mrs: Vec<u64> = most.rails.iter().map(|rail| rail.mrs).collect();
    for of_policy in workload.policies.iter().filter_map(|policy| needs(policy).ok()) {
        mrs.iter_mut().zip(&of_policy.rails).for_each(|(most, rail)| *most = (*most).max(rail.mrs));
    }
    for (rail, mrs) in machine.rails.iter_mut().zip(mrs) {
        let room = mrs.saturating_mul(workload.batches).max(1);
        rail.limits.max_mrs = Some(rail.limits.max_mrs.map_or(room, |limit| limit.min(room)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinrail_core::batch::BatchSpec;

    fn tables(batch: &str, spec: &str, batches: u64) -> Vec<Option<u64>> {
        let mut machine = Machine::of_rails(2);
        let policies = [Policy::new(NonZeroU32::MIN).with(spec).unwrap()];
        let workload = Workload { batch: &BatchSpec::from_json(batch).unwrap(), policies: &policies, batches, resident: false };
        size_tables(&mut machine, &workload);
        machine.rails.iter().map(|rail| rail.limits.max_mrs).collect()
    }

    #[test]
    fn tables_have_room_for_every_buffer_by_itself_and_no_more() {
        let neighbours = r#"{"buffers":[{"len":3221225472},{"len":4096,"allocation":"a"},{"len":4096,"allocation":"a"}]}"#;
        assert_eq!(tables(neighbours, "", 1), [Some(5); 2], "3 GiB are 3 registrations, and neighbours may be parted");
        assert_eq!(tables(neighbours, "rails=rail0", 4), [Some(20); 2]);
    }

    #[test]
    fn what_no_table_holds_is_left_to_the_plan_to_refuse() {
        let buffers = vec![r#"{"len":1}"#; 16_385].join(",");
        assert_eq!(tables(&format!(r#"{{"buffers":[{buffers}]}}"#), "", 1), [None; 2]);
        assert_eq!(tables(r#"{"buffers":[{"len":0}]}"#, "", 1), [None; 2]);
    }
}
