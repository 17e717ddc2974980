//! The units of the packages, started by systemd: the daemon that watches, and the one that acts.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use isotherm_lab::acting::Cgroup;
use isotherm_lab::idle::MIB;
use isotherm_lab::{HOT_IN_COLD, Ran, Running, Zram, eventually, isotherm, result_file, run, shell};

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

fn systemctl(arguments: &[&str]) -> Ran {
    run(Command::new("systemctl").args(arguments))
}

fn is_active(unit: &str) -> bool {
    systemctl(&["is-active", "--quiet", unit]).status == 0
}

/// systemd as the first process of a PID namespace. It has what there is of the machine.
fn systemd() -> Running {
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
    Running::start(command.env("container", "lab").stdin(Stdio::null()).stderr(log))
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_unit_that_watches_changes_nothing_and_the_one_that_acts_takes_its_place() {
    let _swap = Zram::of(256);
    let _systemd = systemd();
    eventually("systemd is there", || systemctl(&["is-system-running"]).out.trim() == "running");
    configure(WATCH);
    assert_eq!(systemctl(&["start", "hot", "isotherm"]).status, 0, "{:?}", systemctl(&["status", "isotherm"]));
    let ctl = |arguments: &[&str]| run(isotherm(&["ctl"]).args(arguments));
    eventually("the service is a group, of which most is idle", || {
        let status: serde_json::Value =
            serde_json::from_str(&ctl(&["status", "hot.service", "--json"]).out).unwrap_or_default();
        status["memory"]["idle"].as_u64().is_some_and(|bytes| bytes > 80 << 20)
    });
    assert_eq!(ctl(&["health"]).out.trim(), "all is well");

    configure(ACT);
    let refused = ctl(&["reload"]);
    assert!(refused.status == 1 && refused.err.contains("isotherm.yaml:5:10: this daemon only watches"), "{refused:?}");
    assert!(is_active("isotherm") && ctl(&["status", "hot.service"]).status == 0);

    let cgroup = Cgroup("/system.slice/hot.service");
    let before = cgroup.current();
    assert_eq!(systemctl(&["start", "isotherm-act"]).status, 0, "{:?}", systemctl(&["status", "isotherm-act"]));
    assert!(!is_active("isotherm") && is_active("isotherm-act"));
    eventually("idle memory has left the cgroup", || cgroup.current() + 64 * MIB <= before);
    assert_eq!(systemctl(&["reload", "isotherm-act"]).status, 0);
    assert_eq!(systemctl(&["stop", "isotherm-act", "hot"]).status, 0);
}
