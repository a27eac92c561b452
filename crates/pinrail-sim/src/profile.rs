//! What calls cost on one kind of host, as data: a TOML file whose keys name their units.
//!
//! A registration of a chunk on a rail costs core time, of which a share is spent under a lock:
//!
//! ```text
//! work    = (ns_per_gib * GiB + ns_per_4kib * pages of 4 KiB) * pages_slowdown + ns_per_gib_registered * GiB
//! outside = (1 - lock.share) * work * (1 + slowdown_per_thread * (n - 1))
//! inside  = (lock.share * work + lock.ns)
//!           * (1 + lock.slowdown_per_doubling * log2(n) + lock.slowdown_per_thread * (n - 1)
//!                + lock.slowdown_oversubscribed * max(0, 1 - cores / N))
//! pages_slowdown = 1 + same_pages_slowdown * log2(m) + other_pages_slowdown * log2(n / m)
//! ```
//!
//! where the GiB of `ns_per_gib_registered` are those that the process has already registered on the rail, `n` are its
//! calls in flight, `m` those of them on the same pages, and `N` the calls in flight on the node.

use serde::Deserialize;

use crate::Error;

/// The version of the format.
const VERSION: i64 = 1;

/// The profiles that come with the crate, in the order in which they are listed and run.
const NAMED: [(&str, &str); 7] = [
    ("efa-p5/joint", include_str!("../profiles/efa-p5/joint.toml")),
    ("efa-p5/flat", include_str!("../profiles/efa-p5/flat.toml")),
    ("rdma-host", include_str!("../profiles/rdma-host.toml")),
    ("p5-host", include_str!("../profiles/p5-host.toml")),
    ("uring-32core", include_str!("../profiles/uring-32core.toml")),
    ("uring", include_str!("../profiles/uring.toml")),
    ("cuda-host", include_str!("../profiles/cuda-host.toml")),
];

/// What calls cost on one kind of host. Times are nanoseconds of one core.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    version: i64,
    /// What it describes, in a sentence.
    pub about: String,
    /// False where it is known to be wrong about `unbounded`, so that nothing may choose that by it.
    #[serde(default = "yes")]
    pub trust_unbounded: bool,
    /// What starting a thread costs.
    pub thread_start_ns: f64,
    /// What exporting a chunk of device memory costs, where a rail takes it by dma-buf.
    #[serde(default)]
    pub export_ns: f64,
    /// What a registration costs.
    pub register: CallCost,
    /// What a deregistration costs; nobody has published it where this is absent.
    pub deregister: Option<CallCost>,
    /// What the first touch of 4 KiB pages costs; absent for device memory, which has none.
    pub touch: Option<TouchCost>,
    /// The same of huge pages; absent where nobody has measured it.
    pub touch_huge: Option<TouchCost>,
}

/// What a call costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallCost {
    /// By the bytes of the chunk.
    pub ns_per_gib: f64,
    /// By its pages.
    pub ns_per_4kib: f64,
    /// By its pages where they are huge, also for every 4 KiB of them; absent where nobody has measured it.
    pub huge_ns_per_4kib: Option<f64>,
    /// By what the process has registered on the rail when the call begins.
    pub ns_per_gib_registered: f64,
    /// How much longer pages take for every doubling of the calls on the same pages.
    pub same_pages_slowdown: f64,
    /// And for every doubling of the calls by those on other pages.
    pub other_pages_slowdown: f64,
    /// How much longer all outside the lock takes for every other call in flight in the process.
    pub slowdown_per_thread: f64,
    /// The lock that every call takes.
    pub lock: Option<LockCost>,
}

/// A lock, first come first served.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockCost {
    /// Who shares it.
    pub scope: Scope,
    /// The share of the work that is done under it.
    pub share: f64,
    /// What is done under it besides.
    #[serde(default)]
    pub ns: f64,
    /// How much longer it is held for every doubling of the calls in flight in the process.
    #[serde(default)]
    pub slowdown_per_doubling: f64,
    /// And for every other call in flight in the process.
    #[serde(default)]
    pub slowdown_per_thread: f64,
    /// And where more calls are in flight on the node than it has cores.
    #[serde(default)]
    pub slowdown_oversubscribed: f64,
    /// The share of a core that somebody who waits for it keeps busy.
    #[serde(default)]
    pub spin: f64,
}

/// Who shares a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The calls of one process on one rail.
    Domain,
    /// The calls of one process.
    Process,
    /// All calls.
    Node,
}

/// What the first touch of pages costs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchCost {
    /// By one thread.
    pub ns_per_4kib: f64,
    /// How much longer all of it takes when several threads touch the same pages.
    pub storm: f64,
    /// Cores that such threads keep busy together; absent where all of them are busy, as far as is known.
    pub storm_cores_busy: Option<f64>,
    /// Threads on pages of their own that still make it faster.
    pub knee_threads: f64,
    /// What each of them adds, in threads.
    pub efficiency: f64,
    /// What remains of the speed with more threads than that.
    pub past_knee: f64,
    /// What finding out that a slice is resident costs.
    pub probe_ns_per_slice: f64,
    /// True where a registration touches pages while it holds the lock.
    #[serde(default)]
    pub under_lock: bool,
}

fn yes() -> bool {
    true
}

impl Profile {
    /// The names of the profiles that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// A profile that comes with the crate.
    ///
    /// # Errors
    /// [`Error::UnknownProfile`], listing those there are.
    pub fn named(name: &str) -> Result<Profile, Error> {
        match NAMED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Profile::from_toml(name, text),
            None => Err(Error::UnknownProfile { name: name.to_owned() }),
        }
    }

    /// Reads a profile; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::File`], naming the key.
    pub fn from_toml(name: &str, text: &str) -> Result<Profile, Error> {
        let profile: Profile = crate::file::parse("profile", name, text, VERSION)?;
        match profile.nonsense() {
            None => Ok(profile),
            Some(what) => Err(Error::File { what: "profile", name: name.to_owned(), line: None, message: what }),
        }
    }

    /// The first key whose value no host can have.
    fn nonsense(&self) -> Option<String> {
        let mut values =
            vec![("thread_start_ns".to_owned(), self.thread_start_ns, NS_MAX), ("export_ns".to_owned(), self.export_ns, NS_MAX)];
        for (table, cost) in [("register", Some(&self.register)), ("deregister", self.deregister.as_ref())] {
            let Some(cost) = cost else { continue };
            let key = |key: &str| format!("{table}.{key}");
            values.extend([
                (key("ns_per_gib"), cost.ns_per_gib, NS_MAX),
                (key("ns_per_4kib"), cost.ns_per_4kib, NS_MAX),
                (key("huge_ns_per_4kib"), cost.huge_ns_per_4kib.unwrap_or(0.0), NS_MAX),
                (key("ns_per_gib_registered"), cost.ns_per_gib_registered, NS_MAX),
                (key("same_pages_slowdown"), cost.same_pages_slowdown, FACTOR_MAX),
                (key("other_pages_slowdown"), cost.other_pages_slowdown, FACTOR_MAX),
                (key("slowdown_per_thread"), cost.slowdown_per_thread, FACTOR_MAX),
            ]);
            if let Some(lock) = cost.lock {
                values.extend([
                    (key("lock.share"), lock.share, 1.0),
                    (key("lock.ns"), lock.ns, NS_MAX),
                    (key("lock.slowdown_per_doubling"), lock.slowdown_per_doubling, FACTOR_MAX),
                    (key("lock.slowdown_per_thread"), lock.slowdown_per_thread, FACTOR_MAX),
                    (key("lock.slowdown_oversubscribed"), lock.slowdown_oversubscribed, FACTOR_MAX),
                    (key("lock.spin"), lock.spin, 1.0),
                ]);
            }
        }
        for (table, touch) in [("touch", self.touch), ("touch_huge", self.touch_huge)] {
            let Some(touch) = touch else { continue };
            let key = |key: &str| format!("{table}.{key}");
            values.extend([
                (key("ns_per_4kib"), touch.ns_per_4kib, NS_MAX),
                (key("storm"), touch.storm, FACTOR_MAX),
                (key("storm_cores_busy"), touch.storm_cores_busy.unwrap_or(1.0), FACTOR_MAX),
                (key("knee_threads"), touch.knee_threads, FACTOR_MAX),
                (key("efficiency"), touch.efficiency, 1.0),
                (key("past_knee"), touch.past_knee, 1.0),
                (key("probe_ns_per_slice"), touch.probe_ns_per_slice, NS_MAX),
            ]);
            for (name, value, least) in [
                ("storm", touch.storm, f64::MIN_POSITIVE),
                ("storm_cores_busy", touch.storm_cores_busy.unwrap_or(1.0), f64::MIN_POSITIVE),
                ("knee_threads", touch.knee_threads, 1.0),
                ("past_knee", touch.past_knee, f64::MIN_POSITIVE),
            ] {
                if value < least {
                    return Some(format!(
                        "{table}.{name} is {value}, and it must be {}",
                        if least == 1.0 { "at least 1" } else { "above 0" }
                    ));
                }
            }
        }
        let wrong = values.into_iter().find(|(_, value, max)| !(0.0..=*max).contains(value));
        wrong.map(|(key, value, max)| format!("{key} is {value}, and it must be from 0 to {max}"))
    }
}

/// A quarter of an hour: more than any call by the GiB or the page.
const NS_MAX: f64 = 900e9;

/// More than any slow-down or number of threads that was ever seen.
const FACTOR_MAX: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_along_is_read() {
        for name in Profile::names() {
            assert!(!Profile::named(name).unwrap().about.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_key_or_value_that_is_wrong_is_named() {
        let good = "version = 1\nabout = 'x'\nthread_start_ns = 0\n[register]\nns_per_gib = 1\n";
        assert!(Profile::from_toml("good", good).is_ok());
        for (text, named) in [
            (good.replace("ns_per_gib", "ns_per_gb"), "ns_per_gb"),
            (good.replace("ns_per_gib = 1", "ns_per_gib = -1"), "register.ns_per_gib is -1"),
            (good.replace("ns_per_gib = 1", "ns_per_gib = nan"), "register.ns_per_gib is NaN"),
            (good.replace("ns_per_gib = 1", "ns_per_gib = inf"), "register.ns_per_gib is inf"),
            (format!("{good}[register.lock]\nscope = 'node'\nshare = 1.5\n"), "register.lock.share is 1.5"),
            (format!("{good}[register.lock]\nscope = 'rail'\nshare = 1\n"), "rail"),
            (
                format!(
                    "{good}[touch]\nns_per_4kib = 1\nstorm = 0\nknee_threads = 1\nefficiency = 1\npast_knee = 1\nprobe_ns_per_slice = 0\n"
                ),
                "touch.storm is 0",
            ),
            (good.replace("version = 1", "version = 2"), "version"),
            (good.replace("thread_start_ns = 0\n", ""), "thread_start_ns"),
        ] {
            let error = Profile::from_toml("bad", &text).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("profile bad"), "{error}");
        }
        assert!(Profile::named("efa").unwrap_err().diagnosis().message.contains("efa-p5/joint"));
    }
}
