//! The units of the packages, started by systemd: the daemon that watches, and the one that acts.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use isotherm_lab::acting::Cgroup;
use isotherm_lab::idle::MIB;
use isotherm_lab::{HOT_IN_COLD, Ran, Running, Zram, eventually, result_file, run, shell};

/// Where lab/test puts the units.
const UNITS: &str = "/etc/systemd/system";

/// Targets of systemd that the units name, and that have nothing to do here.
const TARGETS: [&str; 5] = ["default", "sysinit", "basic", "local-fs", "shutdown"];

/// What runs as a service beside the daemon.
const HOT: &str = "[Service]\nExecStart=/usr/bin/isotherm workload /etc/isotherm/hot.toml\n";

/// An emulated processor is slow. Groups are the default: all processes, and each large cgroup.
const WATCH: &str = "cpu_budget: 100%\n";

const ACT: &str = "cpu_budget: 100%
groups:
  - name: hot
    select: {unit: [hot]}
    act: true
    schemes: [{name: idle, action: reclaim, access_rate: 0%, age: 3s.., quota: {goals: [{pressure: 50%}]}}]
";

fn configure(text: &str) {
    fs::write("/etc/isotherm/isotherm.yaml", text).unwrap();
}

/// systemd as the first process of a PID namespace. It has what there is of the machine.
struct Systemd(Running);

impl Systemd {
    /// Runs a command in the namespaces of systemd, which answers others there only.
    fn run(&self, command: &[&str]) -> Ran {
        let unshare = self.0.pid();
        let first = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        run(Command::new("nsenter").args(["--target", first.trim(), "--pid", "--mount"]).args(command))
    }

    fn is_active(&self, unit: &str) -> bool {
        self.run(&["systemctl", "is-active", "--quiet", unit]).status == 0
    }

    /// Starts, stops or reloads units, which must succeed.
    fn must(&self, arguments: &[&str]) {
        let ran = self.run(&[&["systemctl"], arguments].concat());
        let status = || self.run(&["systemctl", "status", "--no-pager", "--lines=20", "isotherm", "isotherm-act"]);
        assert_eq!(ran.status, 0, "{arguments:?}: {ran:?}, {}", status().out);
    }
}

fn systemd() -> Systemd {
    shell("mkdir -p /etc/isotherm /usr/bin /var/lib /var/log; mount -t tmpfs tmpfs /run");
    fs::write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write("/etc/isotherm/hot.toml", HOT_IN_COLD).unwrap();
    fs::write(format!("{UNITS}/hot.service"), HOT).unwrap();
    symlink("/bin/isotherm", "/usr/bin/isotherm").unwrap();
    for target in TARGETS {
        fs::write(format!("{UNITS}/{target}.target"), "[Unit]\nDefaultDependencies=no\n").unwrap();
    }
    let log = fs::File::create(result_file("systemd.log")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount", "--mount-proc", "/usr/lib/systemd/systemd", "--system"]);
    command.args(["--log-target=console", "--default-standard-output=tty", "--log-level=info"]);
    let systemd = Systemd(Running::start(command.env("container", "lab").stdin(Stdio::null()).stderr(log)));
    eventually("systemd has started", || systemd.run(&["systemctl", "is-system-running"]).out.trim() == "running");
    systemd
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_unit_that_watches_changes_nothing_and_the_one_that_acts_takes_its_place() {
    let _swap = Zram::of(256);
    let systemd = systemd();
    configure(WATCH);
    systemd.must(&["start", "hot", "isotherm"]);
    let ctl = |arguments: &[&str]| systemd.run(&[&["isotherm", "ctl"], arguments].concat());
    eventually("the service is a group, of which most is idle", || {
        let status: serde_json::Value =
            serde_json::from_str(&ctl(&["status", "hot.service", "--json"]).out).unwrap_or_default();
        status["memory"]["idle"].as_u64().is_some_and(|bytes| bytes > 80 << 20)
    });
    assert_eq!(ctl(&["health"]).out.trim(), "all is well");

    configure(ACT);
    let refused = ctl(&["reload"]);
    assert!(refused.status == 1 && refused.err.contains("isotherm.yaml:5:10: this daemon only watches"), "{refused:?}");
    assert!(systemd.is_active("isotherm") && ctl(&["status", "hot.service"]).status == 0);

    let cgroup = Cgroup("/system.slice/hot.service");
    let before = cgroup.current();
    systemd.must(&["start", "isotherm-act"]);
    assert!(!systemd.is_active("isotherm") && systemd.is_active("isotherm-act"));
    eventually("idle memory has left the cgroup", || cgroup.current() + 64 * MIB <= before);
    systemd.must(&["reload", "isotherm-act"]);
    systemd.must(&["stop", "isotherm-act", "hot"]);
}
