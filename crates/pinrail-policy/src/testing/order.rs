use std::collections::BTreeMap;

use pinrail_core::{BufferId, ChunkId};

use super::{Verdict, check_spec, for_all, strategies};
use crate::{ChunkInfo, Order, Permutation};

/// Checks that an order is a permutation of whatever it is asked, never a filter; that it answers the same each time; and
/// that chunks which differ in nothing but their names stay in the caller's order.
///
/// # Panics
/// With the smallest case in which a promise is broken.
pub fn check_order(order: &dyn Order) {
    check_spec(&order.spec());
    for lens in NAMED {
        case(order, &infos(lens)).unwrap_or_else(|why| panic!("lengths {lens:?}: {why}"));
    }
    for_all(&strategies::chunks(), |chunks| case(order, chunks));
}

/// Checks that an order goes by a key and by nothing else: equal keys stay in the caller's order, and what is in order
/// already stays as it is.
///
/// # Panics
/// With the smallest case in which a promise is broken.
pub fn check_order_is_by<K: Ord>(order: &dyn Order, key: impl Fn(&ChunkInfo) -> K) {
    let by_key = |chunks: &[ChunkInfo]| {
        let mut wanted: Vec<u32> = (0..).take(chunks.len()).collect();
        wanted.sort_by_key(|&at| (key(&chunks[at as usize]), at));
        let answer = order.order(chunks);
        if answer == wanted { Ok(()) } else { Err(format!("{} answers {answer:?} instead of {wanted:?}", order.spec())) }
    };
    for lens in NAMED {
        by_key(&infos(lens)).unwrap_or_else(|why| panic!("lengths {lens:?}: {why}"));
    }
    for_all(&strategies::chunks(), |chunks| by_key(chunks));
    for_all(&strategies::chunks(), |chunks| {
        let mut sorted = chunks.clone();
        sorted.sort_by_key(&key);
        let is_unchanged = order.order(&sorted).into_iter().eq((0..).take(sorted.len()));
        if is_unchanged { Ok(()) } else { Err(format!("{} changes what is in its order already", order.spec())) }
    });
}

/// Empty, one, already ascending, descending, all equal, equal ones among others, and lengths at both ends.
const NAMED: [&[u64]; 8] =
    [&[], &[7], &[1, 2, 3, 4], &[4, 3, 2, 1], &[5, 5, 5, 5], &[2, 3, 1, 2, 3, 1], &[u64::MAX, 1, u64::MAX], &[1, 1]];

fn infos(lens: &[u64]) -> Vec<ChunkInfo> {
    (0..).zip(lens).map(|(at, &len)| ChunkInfo { chunk: ChunkId(at), buffer: BufferId(at), len, rails: 1 }).collect()
}

fn case(order: &dyn Order, chunks: &[ChunkInfo]) -> Verdict {
    let permutation = Permutation::ask(order, chunks).map_err(|error| error.to_string())?;
    if Permutation::ask(order, chunks).as_ref() != Ok(&permutation) {
        return Err(format!("{} answers one thing and then another", order.spec()));
    }
    let mut last_of_a_kind = BTreeMap::new();
    for &at in permutation.as_slice() {
        let ChunkInfo { len, rails, .. } = chunks[at as usize];
        if let Some(later) = last_of_a_kind.insert((len, rails), at).filter(|&earlier| earlier > at) {
            return Err(format!("{} puts chunk {later} before chunk {at}, which is equal to it and came first", order.spec()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::finds;
    use super::*;
    use crate::{Ascending, CallerOrder, Descending};

    #[test]
    fn the_crates_own_orders_keep_every_promise() {
        for order in [&CallerOrder as &dyn Order, &Ascending, &Descending] {
            check_order(order);
        }
        check_order_is_by(&CallerOrder, |_| ());
        check_order_is_by(&Ascending, |chunk| chunk.len);
        check_order_is_by(&Descending, |chunk| std::cmp::Reverse(chunk.len));
    }

    /// An order that is wrong in the way its function is.
    struct Bad<F>(F);

    impl<F: Fn(&[ChunkInfo]) -> Vec<u32> + Send + Sync> Order for Bad<F> {
        fn order(&self, chunks: &[ChunkInfo]) -> Vec<u32> {
            (self.0)(chunks)
        }
        fn spec(&self) -> String {
            "bad".to_owned()
        }
    }

    fn all(chunks: &[ChunkInfo]) -> std::ops::Range<u32> {
        0..u32::try_from(chunks.len()).unwrap()
    }

    #[test]
    fn a_filter_is_found() {
        let no_single_bytes = |chunks: &[ChunkInfo]| all(chunks).filter(|&at| chunks[at as usize].len > 1).collect();
        finds(|| check_order(&Bad(no_single_bytes)), "it has 3 entries");
    }

    #[test]
    fn repeating_and_inventing_are_found() {
        let first_twice = |chunks: &[ChunkInfo]| all(chunks).map(|at| if at == 30 { 0 } else { at }).collect();
        finds(|| check_order(&Bad(first_twice)), "chunk 0 comes twice");
        let one_too_many = |chunks: &[ChunkInfo]| all(chunks).map(|at| if at == 17 { at + 1000 } else { at }).collect();
        finds(|| check_order(&Bad(one_too_many)), "there is no chunk 1017");
    }

    #[test]
    fn an_unstable_order_is_found() {
        let last_first = |chunks: &[ChunkInfo]| {
            let mut order: Vec<u32> = all(chunks).collect();
            order.sort_by_key(|&at| std::cmp::Reverse((chunks[at as usize].len, at)));
            order
        };
        finds(|| check_order(&Bad(last_first)), "which is equal to it and came first");
        finds(|| check_order_is_by(&Bad(last_first), |chunk| std::cmp::Reverse(chunk.len)), "instead of");
    }

    #[test]
    fn a_mood_is_found() {
        let calls = AtomicU32::new(0);
        let odd = |chunks: &[ChunkInfo]| {
            let order = all(chunks);
            if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { order.collect() } else { order.rev().collect() }
        };
        finds(std::panic::AssertUnwindSafe(|| check_order(&Bad(odd))), "one thing and then another");
    }

    #[test]
    fn an_order_by_something_else_is_found() {
        finds(|| check_order_is_by(&CallerOrder, |chunk| chunk.len), "caller-order answers [0, 1, 2, 3] instead of [3, 2, 1, 0]");
    }
}
