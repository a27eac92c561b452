//! The simulator as a registrar: calls take as long as a profile says, in scaled real time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pinrail_core::{
    Cause, Chunk, DeregisterError, Identity, Keys, Mr, PinsCounted, Prepare, PrepareError, PrepareStep, Prepared, Rail, RailId,
    RegisterError, Registrar,
};

use crate::Profile;
use crate::cost::{Crowd, Piece, whole_ns};
use crate::profile::{CallCost, Scope};

/// Time, as whoever has a clock passes it in.
pub trait Clock: Send + Sync {
    /// How much has passed since some moment.
    fn now(&self) -> Duration;

    /// Returns when that much has passed.
    fn wait_until(&self, then: Duration);
}

/// A registrar that pins nothing and takes its time. It is one process of a node of its own.
///
/// A call's share of the cores is fixed as it begins: with more calls in flight than cores it takes longer by that factor.
/// What waits for a lock keeps no core busy, pages count as 4 KiB, and the bytes of the memory are never looked at.
pub struct Simulated {
    name: String,
    profile: Profile,
    rails: Vec<Rail>,
    cores: u32,
    /// So much faster than the clock.
    speed: f64,
    clock: Box<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_flight: u32,
    preparing: u32,
    /// By extent: calls in flight.
    on_pages: BTreeMap<(u64, u64), u32>,
    /// By extent that is being touched by registrations: when that ends, and by how many.
    touching: BTreeMap<(u64, u64), (Duration, u32)>,
    /// Addresses that were touched, by start.
    touched: BTreeMap<u64, u64>,
    all_touched: bool,
    /// By rail.
    registered_bytes: Vec<u64>,
    /// By lock: when it is free.
    free_at: Vec<Duration>,
    next_key: u64,
}

/// What is registered.
struct Token {
    bytes: u64,
}

const REGISTER: &str = "sim register";
const DEREGISTER: &str = "sim deregister";

impl Simulated {
    /// Rails on which calls cost what the profile says, `speed` times as fast. `resident` is the state of host memory.
    #[must_use]
    pub fn new(
        name: &str,
        profile: Profile,
        rails: Vec<Rail>,
        cores: u32,
        speed: f64,
        resident: bool,
        clock: Box<dyn Clock>,
    ) -> Simulated {
        // Nothing is pinned here, for rails that do: nobody's budget is asked, and times count as those of pins.
        let rails: Vec<Rail> = rails.into_iter().map(|rail| Rail { pins: PinsCounted::Unknown, ..rail }).collect();
        let state = State {
            all_touched: resident || profile.touch.is_none(),
            registered_bytes: vec![0; rails.len()],
            free_at: vec![Duration::ZERO; rails.len().max(1)],
            ..State::default()
        };
        Simulated { name: name.to_owned(), profile, rails, cores, speed, clock, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual nanoseconds of one core as time on the clock, with that many threads at it.
    fn takes(&self, ns: f64, threads: u32) -> Duration {
        let stretch = (f64::from(threads) / f64::from(self.cores.max(1))).max(1.0);
        Duration::from_nanos(whole_ns(ns * stretch / self.speed))
    }

    fn crowd(&self, state: &State, pages: (u64, u64)) -> Crowd {
        let same_pages = state.on_pages.get(&pages).copied().unwrap_or(1);
        Crowd { process: state.in_flight, same_pages, node: state.in_flight, cores: self.cores }
    }

    /// A call on a rail: lets it take its time among the others that are in flight.
    fn call(&self, cost: &CallCost, rail: RailId, pages: (u64, u64), piece: Piece, touches: bool) {
        {
            let mut state = self.state();
            state.in_flight += 1;
            *state.on_pages.entry(pages).or_default() += 1;
        }
        let under_lock = self.profile.touch.filter(|touch| touches && touch.under_lock);
        if touches && under_lock.is_none() {
            self.touch(pages);
        }
        let (work_ns, outside) = {
            let state = self.state();
            let crowd = self.crowd(&state, pages);
            let work_ns = cost.work_ns(&piece, &crowd);
            (work_ns, self.takes(cost.outside_ns(work_ns, &crowd), state.in_flight))
        };
        self.clock.wait_until(self.clock.now() + outside);
        if let Some(lock) = cost.lock {
            let mut state = self.state();
            let of = if lock.scope == Scope::Domain { rail.index() } else { 0 };
            let touch_ns = under_lock.map_or(0.0, |touch| touch.among_ns(state.untouched_bytes(pages) / 4096, 1));
            if touch_ns > 0.0 {
                state.add_touched(pages.0..pages.1);
            }
            let held = self.takes(lock.inside_ns(work_ns, &self.crowd(&state, pages)) + touch_ns, 1);
            let free_at = self.clock.now().max(state.free_at[of]) + held;
            state.free_at[of] = free_at;
            drop(state);
            self.clock.wait_until(free_at);
        }
        let mut state = self.state();
        state.in_flight -= 1;
        if let Some(calls) = state.on_pages.get_mut(&pages) {
            *calls -= 1;
            if *calls == 0 {
                state.on_pages.remove(&pages);
            }
        }
    }

    /// Touches the pages that nobody has, with those registrations that are at it already.
    fn touch(&self, pages: (u64, u64)) {
        let Some(touch) = self.profile.touch else { return };
        let mut state = self.state();
        let untouched = state.untouched_bytes(pages);
        if untouched == 0 {
            return;
        }
        let now = self.clock.now();
        let (end, threads) = match state.touching.get(&pages).copied() {
            None => (now + self.takes(touch.among_ns(untouched / 4096, 1), 1), 1),
            Some((end, 1)) => (now + end.saturating_sub(now).mul_f64(touch.storm), 2),
            Some((end, threads)) => (end, threads + 1),
        };
        state.touching.insert(pages, (end, threads));
        drop(state);
        loop {
            // Another that joins may have moved the end.
            let end = self.state().touching.get(&pages).map_or(Duration::ZERO, |(end, _)| *end);
            if self.clock.now() >= end {
                break;
            }
            self.clock.wait_until(end);
        }
        let mut state = self.state();
        state.touching.remove(&pages);
        state.add_touched(pages.0..pages.1);
    }
}

impl State {
    fn untouched_bytes(&self, (start, end): (u64, u64)) -> u64 {
        if self.all_touched {
            return 0;
        }
        let touched = self.touched.range(..end).filter(|(_, of)| **of > start);
        (end - start) - touched.map(|(&from, &to)| to.min(end) - from.max(start)).sum::<u64>()
    }

    /// Ranges never overlap: those that meet become one.
    fn add_touched(&mut self, Range { mut start, mut end }: Range<u64>) {
        while let Some((&from, &to)) = self.touched.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.touched.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.touched.insert(start, end);
    }
}

impl Registrar for Simulated {
    fn identity(&self) -> Identity {
        let speed = if self.speed == 1.0 { String::new() } else { format!(", {} times as fast", self.speed) };
        Identity {
            backend: "sim".to_owned(),
            provider: self.name.clone(),
            library: format!("pinrail-sim {}{speed}", env!("CARGO_PKG_VERSION")),
        }
    }

    fn rails(&self) -> &[Rail] {
        &self.rails
    }

    fn register(&self, rail: RailId, chunk: &Chunk<'_>) -> Result<Mr, RegisterError> {
        if rail.index() >= self.rails.len() {
            return Err(RegisterError::no_such_rail(REGISTER, rail, self.rails.len()));
        }
        let extent = chunk.check().map_err(|error| RegisterError::new(REGISTER, None, Cause::Extent(error)))?;
        let pages = (extent.start() / 4096 * 4096, extent.end().next_multiple_of(4096));
        let registered_bytes = self.state().registered_bytes[rail.index()];
        let piece = Piece { bytes: extent.len(), pages_4kib: (pages.1 - pages.0) / 4096, huge: false, registered_bytes };
        self.call(&self.profile.register, rail, pages, piece, true);
        let mut state = self.state();
        state.registered_bytes[rail.index()] += extent.len();
        state.next_key += 1;
        let keys = Keys { local: state.next_key, remote: state.next_key.to_le_bytes().as_slice().into() };
        Ok(Mr::new(rail, keys, Token { bytes: extent.len() }, chunk))
    }

    fn deregister(&self, mr: &mut Mr) -> Result<(), DeregisterError> {
        let Some(&Token { bytes }) = mr.token::<Token>() else {
            let what = "it is retired, or another registrar's".to_owned();
            return Err(DeregisterError::new(DEREGISTER, None, Cause::Other { what }));
        };
        let (rail, extent) = (mr.rail(), mr.extent());
        let pages = (extent.start() / 4096 * 4096, extent.end().next_multiple_of(4096));
        if let Some(cost) = &self.profile.deregister {
            let piece = Piece { bytes, pages_4kib: (pages.1 - pages.0) / 4096, huge: false, registered_bytes: 0 };
            self.call(cost, rail, pages, piece, false);
        }
        if mr.retire::<Token>().is_some() {
            let mut state = self.state();
            let registered = &mut state.registered_bytes[rail.index()];
            *registered = registered.saturating_sub(bytes);
        }
        Ok(())
    }
}

impl Prepare for Simulated {
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        let PrepareStep::Populate { memory, range, .. } = step else { return Ok(Prepared::Skipped) };
        let Some(touch) = self.profile.touch else { return Ok(Prepared::Skipped) };
        let base = memory.extent().start();
        let pages = base + range.start..base + range.end;
        let mut state = self.state();
        let bytes = state.untouched_bytes((pages.start, pages.end));
        if bytes == 0 {
            drop(state);
            self.clock.wait_until(self.clock.now() + self.takes(touch.probe_ns_per_slice, 1));
            return Ok(Prepared::Skipped);
        }
        state.preparing += 1;
        let takes = self.takes(touch.among_ns(bytes.div_ceil(4096), state.preparing), 1);
        drop(state);
        self.clock.wait_until(self.clock.now() + takes);
        let mut state = self.state();
        state.preparing -= 1;
        state.add_touched(pages);
        Ok(Prepared::Resident { bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use pinrail_core::{Access, Memory, Place, Source};

    use super::*;
    use crate::cost::float;

    /// A clock that goes where it is told to.
    #[derive(Default)]
    struct Told(AtomicU64);

    impl Clock for Told {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn wait_until(&self, then: Duration) {
            self.0.fetch_max(u64::try_from(then.as_nanos()).unwrap(), Ordering::Relaxed);
        }
    }

    fn rails(n: u16) -> Vec<Rail> {
        pinrail_core::Machine::of_rails(n).rails
    }

    fn simulated(profile: &str, speed: f64, resident: bool) -> Simulated {
        Simulated::new(profile, Profile::named(profile).unwrap(), rails(2), 8, speed, resident, Box::new(Told::default()))
    }

    /// A registration of a GiB, and the milliseconds it took.
    fn register(sim: &Simulated, at: u64) -> (Mr, f64) {
        let memory = Memory::imagined(at << 30, 1 << 30).unwrap();
        let before = sim.clock.now();
        let chunk = Chunk { memory: &memory, range: 0..1 << 30, access: Access::FULL, source: &Source::Address };
        let mr = sim.register(RailId(1), &chunk).unwrap();
        (mr, (sim.clock.now() - before).as_secs_f64() * 1e3)
    }

    #[test]
    fn a_call_takes_longer_by_what_its_rail_holds_until_that_is_deregistered() {
        let sim = simulated("efa-p5/joint", 1.0, false);
        let (mut first, empty) = register(&sim, 1);
        let (mut second, one) = register(&sim, 2);
        assert!((empty - 7.05).abs() < 1e-3 && (one - empty - 8.35).abs() < 1e-3, "{empty} {one}");
        sim.deregister(&mut second).unwrap();
        sim.deregister(&mut first).unwrap();
        assert!(sim.deregister(&mut first).is_err(), "once");
        let (mut again, ms) = register(&sim, 1);
        assert!((ms - empty).abs() < 1e-3);
        sim.deregister(&mut again).unwrap();
        let fast = simulated("efa-p5/flat", 10.0, false);
        let (mut mr, ms) = register(&fast, 1);
        assert!((ms - 0.705).abs() < 1e-3);
        fast.deregister(&mut mr).unwrap();
    }

    #[test]
    fn pages_are_touched_once_and_not_after_they_were_prepared() {
        let sim = simulated("uring-32core", 1.0, false);
        let (pin, touch) = (262_144.0 * 63.4e-6, 262_144.0 * 1600e-6);
        let memory = Memory::imagined(3 << 30, 1 << 30).unwrap();
        let step = PrepareStep::Populate { memory: &memory, range: 0..1 << 30, access: Access::FULL, place: Place::Host };
        assert!(matches!(sim.prepare(&step), Ok(Prepared::Resident { bytes: 0x4000_0000 })));
        assert!(matches!(sim.prepare(&step), Ok(Prepared::Skipped)));
        for (at, expected) in [(1, pin + touch), (1, pin), (3, pin)] {
            let (mut mr, ms) = register(&sim, at);
            assert!((ms - expected).abs() < 0.01, "{at}: {ms} {expected}");
            sim.deregister(&mut mr).unwrap();
        }
        assert!((float(sim.state().untouched_bytes((0, 4 << 30))) / 1e9 - 2.147).abs() < 1e-3);
    }
}
