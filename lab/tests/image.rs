//! The image of isotherm, built and run by podman as docs/containers.md says, watches other containers.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;

use isotherm_lab::podman::{command, podman, prepare};
use isotherm_lab::{HOT_IN_COLD, Running, eventually, run};
use serde_json::Value;

/// What the test adds to the command of the documentation. The program here needs its libraries; that of a release has
/// them inside. There is no network.
const HERE: [&str; 10] =
    ["--pull", "never", "--network", "host", "--log-driver", "none", "-v", "/lib:/lib:ro", "-v", "/lib64:/lib64:ro"];

/// The capabilities that the documentation names.
const CAPABILITIES: [&str; 6] = ["BPF", "PERFMON", "SYS_PTRACE", "SYS_NICE", "SYS_ADMIN", "DAC_READ_SEARCH"];

/// The arguments of `podman run` in docs/containers.md, without the image.
fn documented() -> Vec<&'static str> {
    let text = include_str!("../../docs/containers.md");
    let (_, after) = text.split_once("\npodman run ").unwrap();
    let (arguments, _) = after.split_once("\n  isotherm\n").unwrap();
    arguments.split_whitespace().filter(|word| *word != "\\").collect()
}

/// Builds the image, and makes what the documented command mounts.
fn build() {
    prepare();
    for directory in ["/tmp/context", "/tmp/etc", "/var/lib/isotherm", "/var/log/containers"] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::copy("/bin/isotherm", "/tmp/context/isotherm").unwrap();
    podman(&["build", "--quiet", "-t", "isotherm", "-f", "/root/Containerfile", "/tmp/context"]);
    fs::write("/tmp/etc/hot.toml", HOT_IN_COLD).unwrap();
    // An emulated processor is slow.
    let config = "cpu_budget: 100%\ngroups: [{name: web, select: {container: [web]}}]\n";
    fs::write("/tmp/etc/isotherm.yaml", config).unwrap();
}

/// The output of `isotherm doctor` in a container with these arguments of `podman run`.
fn doctor(arguments: &[&str]) -> String {
    let ran = run(&mut command(&[&["run", "--rm"], &HERE[..], arguments, &["isotherm", "doctor"]].concat()));
    assert!(ran.out.contains("Actions of schemes"), "{ran:?}");
    ran.out
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_image_watches_another_container_with_the_documented_rights_and_doctor_tells_what_is_missing() {
    build();
    let config = ["-v", "/tmp/etc:/etc/isotherm:ro"];
    let target = [&["run", "--detach", "--name", "web"], &HERE[..], &config].concat();
    podman(&[&target[..], &["isotherm", "workload", "/etc/isotherm/hot.toml"]].concat());
    let documented = documented();
    assert!(documented.contains(&"--read-only") && documented.contains(&CAPABILITIES.join(",").as_str()));
    let watcher = [&["run", "--name", "watcher"], &HERE[..], &config, &documented, &["isotherm"]].concat();
    let _watcher = Running::start(&mut command(&watcher));
    let ctl =
        |arguments: &[&str]| run(&mut command(&[&["exec", "watcher", "/usr/bin/isotherm", "ctl"], arguments].concat()));
    let status = || {
        let ran = ctl(&["status", "web", "--json"]);
        let status: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        (status, ran)
    };
    eventually("the container has a survey in which most is idle", || {
        let (status, ran) = status();
        let idle = status["memory"]["idle"].as_u64();
        println!("{}: {:?} idle {}", status["state"], idle, ran.err);
        idle.is_some_and(|bytes| bytes > 80 << 20)
    });
    let (status, _) = status();
    assert_eq!((&status["processes"], &status["probe"]), (&1.into(), &"bpf".into()), "{status}");
    let resident = status["memory"]["resident"].as_u64().unwrap() >> 20;
    assert!((128..160).contains(&resident), "{status}");
    assert_eq!(ctl(&["health"]).out.trim(), "all is well");
    podman(&["exec", "watcher", "/usr/bin/isotherm", "doctor"]);
    podman(&["rm", "--force", "--time", "0", "watcher", "web"]);

    let all = doctor(&documented);
    assert!(all.contains("bpf   works") && !all.contains("What this container keeps from isotherm"), "{all}");
    for missing in CAPABILITIES {
        let without = CAPABILITIES.iter().filter(|name| **name != missing).copied().collect::<Vec<_>>().join(",");
        let named = CAPABILITIES.join(",");
        let arguments: Vec<&str> =
            documented.iter().map(|word| if *word == named { without.as_str() } else { *word }).collect();
        let said = doctor(&arguments);
        assert!(said.contains(&format!("CAP_{missing} is missing")), "{said}");
    }
    let nothing = doctor(&[]);
    for words in ["--pid=host", "--cgroupns=host", "--cap-add SYS_PTRACE"] {
        assert!(nothing.contains(words), "{nothing}");
    }
}
