//! The tests that need RDMA devices, run where there are some. They are ordinary tests of their crates: built here, run
//! there, and where there is no device they say that they are skipped.

use std::path::PathBuf;

use serde_json::Value;

use crate::{Result, command::Line};

/// A test binary, and which of its tests run in the guest.
pub(super) struct Suite {
    package: &'static str,
    test: &'static str,
    features: &'static str,
    /// The module they are in; empty for all.
    module: &'static str,
    /// A guest with fewer rails is not for them.
    rails_min: u8,
}

pub(super) const SUITES: &[Suite] = &[
    Suite { package: "pinrail-verbs", test: "it", features: "", module: "", rails_min: 1 },
    // libfabric finds no address for a device on the loop-back interface, which the one rail of a guest is on.
    Suite { package: "pinrail-libfabric", test: "rdma", features: "", module: "", rails_min: 2 },
    Suite { package: "pinrail-cli", test: "it", features: "libfabric,verbs", module: "verbs::", rails_min: 1 },
];

/// A suite that is built.
pub(super) struct Built {
    pub(super) name: String,
    program: PathBuf,
    module: &'static str,
    pub(super) rails_min: u8,
    /// Tests that it lists, without those that only other tests start.
    pub(super) tests: u32,
}

impl Suite {
    pub(super) fn build(&self) -> Result<Built> {
        let line = Line::new("cargo test --locked --no-run --message-format json --package");
        let line = line.words([self.package, "--test", self.test]);
        let line = if self.features.is_empty() { line } else { line.words(["--features", self.features]) };
        println!("$ {line}");
        let messages = line.output()?;
        let program = messages.lines().find_map(executable).ok_or_else(|| format!("`{line}` built no test"))?;
        let list = Line::program(program.to_string_lossy()).words(["--list", "--format", "terse", self.module]);
        let count = |line: Line| Ok::<_, String>(line.output()?.lines().filter(|line| line.ends_with(": test")).count());
        let tests = count(list.clone())? - count(list.word("--ignored"))?;
        let tests = u32::try_from(tests).map_err(|_| "more tests than can be counted".to_owned())?;
        if tests == 0 {
            return Err(format!("{} has no tests", program.display()));
        }
        let name = format!("{}-{}", self.package, self.test);
        Ok(Built { name, program, module: self.module, rails_min: self.rails_min, tests })
    }
}

/// The test program of a line of cargo's JSON.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    message["executable"].as_str().filter(|_| is_test).map(PathBuf::from)
}

/// What the guest runs: every suite, each with its output into a file of its own in the shared folder.
pub(super) fn command(suites: &[&Built], nodes: &[u8]) -> String {
    let nodes: Vec<String> = nodes.iter().map(u8::to_string).collect();
    // With this variable, a test that finds no device fails.
    let mut script = format!("export PINRAIL_GUEST_NODES='{}'\nstatus=0\n", nodes.join(","));
    for suite in suites {
        let line = Line::program(suite.program.to_string_lossy()).word(suite.module);
        script += &format!("{line} >/run/vm/{}.log 2>&1 || status=1\n", suite.name);
    }
    script + "exit $status\n"
}

/// Checks that all of a suite's tests ran in the guest and passed, by its own closing line.
pub(super) fn judge(suite: &Built, log: &str) -> Result<()> {
    let wanted = format!("test result: ok. {} passed; 0 failed;", suite.tests);
    if log.lines().any(|line| line.contains("SKIPPED: ")) {
        return Err(format!("{}: tests were skipped in the guest", suite.name));
    }
    if log.lines().any(|line| line.starts_with(&wanted)) {
        return Ok(());
    }
    Err(format!("{}: not all of its {} tests passed in the guest", suite.name, suite.tests))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(tests: u32) -> Built {
        let (name, program) = ("pinrail-verbs-it".into(), "/tree/it tests".into());
        Built { name, program, module: "verbs::", rails_min: 1, tests }
    }

    #[test]
    fn only_as_many_as_are_listed_are_all() {
        let log = |passed, failed| format!("running 3 tests\n\ntest result: ok. {passed} passed; {failed} failed; 1 ignored;\n");
        assert_eq!(judge(&built(3), &log(3, 0)), Ok(()));
        assert!(judge(&built(3), &log(2, 0)).is_err(), "one is missing");
        assert!(judge(&built(3), &log(13, 0)).is_err());
        assert!(judge(&built(3), &log(3, 1)).is_err());
        assert!(judge(&built(3), "").is_err(), "it did not come to its end");
        assert!(judge(&built(3), &format!("SKIPPED: no RDMA device\n{}", log(3, 0))).is_err());
    }

    #[test]
    fn a_failure_of_any_suite_is_the_commands() {
        let script = command(&[&built(3), &built(4)], &[0, 1]);
        assert_eq!(
            script,
            "export PINRAIL_GUEST_NODES='0,1'\nstatus=0\n\
             '/tree/it tests' verbs:: >/run/vm/pinrail-verbs-it.log 2>&1 || status=1\n\
             '/tree/it tests' verbs:: >/run/vm/pinrail-verbs-it.log 2>&1 || status=1\n\
             exit $status\n"
        );
    }

    #[test]
    fn of_cargos_messages_the_test_program_counts() {
        let message = |reason: &str, test: bool, executable: &str| {
            format!(r#"{{"reason":"{reason}","profile":{{"test":{test}}},"executable":{executable}}}"#)
        };
        assert_eq!(executable(&message("compiler-artifact", true, "\"/tree/it\"")), Some("/tree/it".into()));
        assert_eq!(executable(&message("compiler-artifact", false, "\"/tree/build\"")), None);
        assert_eq!(executable(&message("compiler-artifact", true, "null")), None);
        assert_eq!(executable("Compiling"), None);
    }
}
