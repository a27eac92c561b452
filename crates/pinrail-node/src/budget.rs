use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node_file::{NodeFile, TOKENS_MAX};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, now, wait};
use crate::tokens::Tokens;
use crate::{Degraded, FileError, fork};

/// The longest that anyone sleeps without looking: who was killed rings no bell.
const TICK: Duration = Duration::from_millis(20);

/// How long a process waits for a token before it no longer believes that one will come.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a budget is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file that the processes share, on a tmpfs; its name belongs to this crate alone.
    pub path: PathBuf,
    /// Tokens of the node: about its cores, and the same number in every process. At most 4095 are used.
    pub tokens: NonZeroU32,
    /// How many processes of this node will share them, where the launcher said so (`LOCAL_WORLD_SIZE` and the like).
    pub peers: Option<NonZeroU32>,
}

impl Config {
    /// So many tokens in `/dev/shm/pinrail-node`, shared by nobody knows how many processes.
    #[must_use]
    pub fn new(tokens: NonZeroU32) -> Config {
        Config { path: PathBuf::from("/dev/shm/pinrail-node"), tokens, peers: None }
    }
}

/// A process's part in the tokens of its node. Open one a process, and share it between its threads.
pub struct NodeBudget {
    config: Config,
    generation: u32,
    local: Mutex<Local>,
    /// Where threads wait for those of their own process.
    turn: Condvar,
}

/// The right to run one thing at a time, until it is dropped.
#[must_use = "a token that is dropped at once allows nothing"]
pub struct Token<'b> {
    budget: &'b NodeBudget,
    grant: Grant,
}

enum Grant {
    /// The one that every process has.
    Implicit,
    /// One of the node's.
    Node(Arc<Tokens>, u32),
    /// Of a fixed share, by a process that does not ask the node.
    Share,
}

/// How long somebody waits.
#[derive(Clone, Copy)]
enum Until {
    Now,
    Then(Instant),
    Ever,
}

struct Local {
    tokens: Option<Arc<Tokens>>,
    /// Whether we still ask the node; never again once not.
    asks: bool,
    degraded: Option<Degraded>,
    /// Whether all that were promised have been here at once.
    all_seen: bool,
    /// Processes as last counted, or as promised where those are more.
    processes: NonZeroU32,
    /// Tokens given out here, one that is being sought included.
    running: u32,
    implicit_is_free: bool,
    /// A thread asks the node, or sleeps until it should ask again: one at a time, so that processes and not threads queue
    /// for tokens.
    seeking: bool,
    /// Threads that wait for their turn.
    followers: u32,
    /// The word before the last search that found nothing, and when that was: nothing has changed since while it is the same.
    dry: Option<(u32, Instant)>,
    /// When we last looked after file and peers.
    looked: Option<Instant>,
}

impl NodeBudget {
    /// Joins the budget of the node. That never fails: a process that cannot share keeps to a fixed share, tokens divided by
    /// processes, and [`NodeBudget::degraded`] says why.
    #[must_use]
    pub fn open(config: Config) -> NodeBudget {
        let file = NodeFile::open(&config.path);
        NodeBudget::with(config, file)
    }

    pub(crate) fn with(config: Config, file: Result<NodeFile, FileError>) -> NodeBudget {
        let (tokens, degraded) = match file {
            Ok(file) => (Some(Arc::new(Tokens::new(file, config.tokens.get().min(TOKENS_MAX)))), None),
            Err(error) => (None, Some(Degraded::File(error))),
        };
        let local = Local {
            asks: tokens.is_some(),
            tokens,
            degraded,
            all_seen: false,
            processes: config.peers.unwrap_or(NonZeroU32::MIN),
            running: 0,
            implicit_is_free: true,
            seeking: false,
            followers: 0,
            dry: None,
            looked: None,
        };
        let budget = NodeBudget { config, generation: fork::generation(), local: Mutex::new(local), turn: Condvar::new() };
        budget.look_after(&mut lock(&budget.local));
        budget
    }

    /// A token, as soon as there is one. While this process holds none there always is.
    pub fn acquire(&self) -> Token<'_> {
        loop {
            // Nobody who waits without end comes back without one.
            if let Some(token) = self.acquire_by(Until::Ever) {
                return token;
            }
        }
    }

    /// The same, but not later than then.
    pub fn acquire_until(&self, deadline: Instant) -> Option<Token<'_>> {
        self.acquire_by(Until::Then(deadline))
    }

    /// A token if there is one now, and no other thread of this process waits for it.
    pub fn try_acquire(&self) -> Option<Token<'_>> {
        self.acquire_by(Until::Now)
    }

    /// How many processes share the budget: those seen, this one included, or those promised where they are more.
    ///
    /// Two system calls for each.
    #[must_use]
    pub fn processes(&self) -> NonZeroU32 {
        let mut local = lock(&self.local);
        self.leave_if_forked(&mut local);
        self.count(&mut local);
        local.processes
    }

    /// Why this process keeps to a share, if it does now.
    #[must_use]
    pub fn degraded(&self) -> Option<Degraded> {
        let mut local = lock(&self.local);
        self.leave_if_forked(&mut local);
        self.look_after(&mut local);
        local.degraded.clone()
    }

    /// How many tokens a process has that keeps to its share: all, divided by the processes last counted.
    #[must_use]
    pub fn share(&self) -> NonZeroU32 {
        self.share_of(&lock(&self.local))
    }

    fn share_of(&self, local: &Local) -> NonZeroU32 {
        NonZeroU32::new(self.config.tokens.get() / local.processes).unwrap_or(NonZeroU32::MIN)
    }

    fn acquire_by(&self, until: Until) -> Option<Token<'_>> {
        let mut waiting_since = None;
        let mut local = lock(&self.local);
        self.leave_if_forked(&mut local);
        let grant = loop {
            self.look_after(&mut local);
            let most = if local.degraded.is_some() { self.share_of(&local).get() } else { u32::MAX };
            if local.running < most {
                if local.implicit_is_free {
                    local.implicit_is_free = false;
                    local.running += 1;
                    break Some(Grant::Implicit);
                }
                if !local.asks {
                    local.running += 1;
                    break Some(Grant::Share);
                }
                let is_known = local.seeking || matches!(until, Until::Now) && local.is_dry();
                if !is_known {
                    let found;
                    (local, found) = self.seek(local, until, &mut waiting_since);
                    if found.is_some() {
                        break found;
                    }
                    if until.has_come() && !local.implicit_is_free {
                        break None;
                    }
                    continue;
                }
            }
            if until.has_come() {
                break None;
            }
            // Those who are missed may come at any time, and ring no bell.
            let peers_missing = matches!(local.degraded, Some(Degraded::PeersMissing { .. }));
            let look_again = peers_missing.then(|| now() + TICK);
            local.followers += 1;
            local = wait(&self.turn, local, until.or_earlier(look_again));
            local.followers -= 1;
        };
        // Whoever sought no longer does: it is the next one's turn.
        if !local.seeking && local.followers > 0 {
            self.turn.notify_one();
        }
        drop(local);
        grant.map(|grant| Token { budget: self, grant })
    }

    /// Asks the node once, and sleeps a while where it has no token.
    fn seek<'l>(
        &'l self,
        mut local: MutexGuard<'l, Local>,
        until: Until,
        waiting_since: &mut Option<Instant>,
    ) -> (MutexGuard<'l, Local>, Option<Grant>) {
        let Some(tokens) = local.tokens.clone() else { return (local, None) };
        local.seeking = true;
        local.running += 1;
        drop(local);
        // What was ours last is likely to be free, and then nobody needs the word.
        let mut word = 0;
        let mut found = tokens.take_again();
        if matches!(found, Ok(None)) {
            word = tokens.file.word();
            found = tokens.take(word);
        }
        local = lock(&self.local);
        match found {
            Ok(Some(token)) => {
                local.seeking = false;
                return (local, Some(Grant::Node(tokens, token)));
            }
            Ok(None) => {
                let now = now();
                let since = *waiting_since.get_or_insert(now);
                let waited = now.saturating_duration_since(since);
                local.dry = Some((word, now));
                if waited >= PATIENCE {
                    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                    self.count(&mut local);
                    self.leave(&mut local, Degraded::Waited { waited_ms });
                } else if !local.implicit_is_free && !until.has_come() {
                    drop(local);
                    tokens.file.sleep(word, until.or_earlier(Some(now + TICK)).map_or(TICK, |then| then - now));
                    local = lock(&self.local);
                }
            }
            Err(error) => self.leave(&mut local, Degraded::File(error)),
        }
        local.seeking = false;
        local.running = local.running.saturating_sub(1);
        (local, None)
    }

    /// Once a tick: whether the file is still the one at its path, and whether those who were promised have come.
    fn look_after(&self, local: &mut Local) {
        let now = now();
        if !local.asks || local.looked.is_some_and(|last| now.saturating_duration_since(last) < TICK) {
            return;
        }
        local.looked = Some(now);
        let Some(tokens) = &local.tokens else { return };
        if !tokens.file.is_current() {
            match NodeFile::open(&self.config.path) {
                // What is held of the old file is given back to it.
                Ok(file) => local.tokens = Some(Arc::new(Tokens::new(file, self.config.tokens.get().min(TOKENS_MAX)))),
                Err(error) => return self.leave(local, Degraded::File(error)),
            }
            (local.dry, local.all_seen) = (None, false);
        }
        if local.all_seen {
            return;
        }
        let present = self.count(local);
        match self.config.peers {
            Some(promised) if present < promised => local.degraded = Some(Degraded::PeersMissing { present, promised }),
            _ if local.asks => {
                local.all_seen = true;
                local.degraded = None;
                self.turn.notify_all();
            }
            _ => {}
        }
    }

    /// Counts the processes that are here.
    fn count(&self, local: &mut Local) -> NonZeroU32 {
        let Some(tokens) = local.tokens.as_ref().filter(|_| !matches!(local.degraded, Some(Degraded::Forked))) else {
            return local.processes;
        };
        match tokens.file.others() {
            Ok(others) => {
                let present = NonZeroU32::MIN.saturating_add(others);
                local.processes = self.config.peers.map_or(present, |promised| promised.max(present));
                present
            }
            Err(error) => {
                self.leave(local, Degraded::File(error));
                local.processes
            }
        }
    }

    /// Keeps to the share from now on.
    fn leave(&self, local: &mut Local, why: Degraded) {
        // The file stays open where there is one: others count us.
        local.asks = false;
        local.degraded = Some(why);
        self.turn.notify_all();
    }

    /// In a forked child nothing that was counted before is true.
    fn leave_if_forked(&self, local: &mut Local) {
        if self.generation != fork::generation() && !matches!(local.degraded, Some(Degraded::Forked)) {
            (local.running, local.followers, local.seeking, local.implicit_is_free) = (0, 0, false, true);
            self.leave(local, Degraded::Forked);
        }
    }
}

impl fmt::Debug for NodeBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBudget").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Local {
    /// True if nothing has changed since a search found nothing.
    fn is_dry(&self) -> bool {
        let (Some((word, at)), Some(tokens)) = (self.dry, &self.tokens) else { return false };
        now().saturating_duration_since(at) < TICK && tokens.file.word() == word
    }
}

impl Until {
    fn has_come(self) -> bool {
        match self {
            Until::Now => true,
            Until::Then(then) => now() >= then,
            Until::Ever => false,
        }
    }

    fn or_earlier(self, other: Option<Instant>) -> Option<Instant> {
        match self {
            Until::Now | Until::Ever => other,
            Until::Then(then) => Some(other.map_or(then, |other| other.min(then))),
        }
    }
}

impl Token<'_> {
    /// Which of the node's tokens this is; `None` for the one that the process has of its own, and for one of a share.
    #[must_use]
    pub fn of_node(&self) -> Option<u32> {
        match self.grant {
            Grant::Node(_, token) => Some(token),
            Grant::Implicit | Grant::Share => None,
        }
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if let Grant::Node(tokens, token) = &self.grant {
            tokens.give_back(*token);
        }
        let budget = self.budget;
        let mut local = lock(&budget.local);
        local.running = local.running.saturating_sub(1);
        let mut sleeper = None;
        if matches!(self.grant, Grant::Implicit) {
            local.implicit_is_free = true;
            sleeper = local.tokens.clone().filter(|_| local.seeking);
        }
        if local.followers > 0 {
            budget.turn.notify_one();
        }
        drop(local);
        if let Some(tokens) = sleeper {
            tokens.file.ring_ourselves();
        }
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.of_node()).finish()
    }
}
