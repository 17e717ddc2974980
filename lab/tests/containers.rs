//! Containers of real runtimes are found by their name and ID: those of podman, and those that crun makes in the
//! cgroups of Docker and Kubernetes.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use isotherm_lab::podman::{made_root, must, podman, prepare};
use isotherm_lab::{EMULATED, Running, eventually, isotherm, result_file, succeed, watched};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POD: &str = "6f1d9e4a-1c2b-4d3e-8f9a-0b1c2d3e4f50";

/// The processes of a container: one, and its child.
const SCRIPT: &str = "sleep 1000 & wait";

/// A process and its child.
fn with_its_child(pid: u32) -> BTreeSet<u32> {
    let mut all = BTreeSet::from([pid]);
    eventually("the container has two processes", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        all.extend(children.split_whitespace().map(|child| child.parse::<u32>().unwrap()));
        all.len() == 2
    });
    all
}

/// Records a container that is named so, and calls `start`, which starts it if it does not run, and returns its first
/// process. Checks that its processes are recorded, and no others.
fn assert_recorded(name: &str, start: impl FnOnce() -> u32) {
    let recording = result_file(&format!("container-{name}.rec"));
    let file = recording.to_str().unwrap();
    let mut command = isotherm(&["record", "--container", name, "--wait", "--quiet", "-o", file]);
    let mut recorder = Running::start(command.args(EMULATED));
    let wanted = with_its_child(start());
    eventually(&format!("{name}: {wanted:?} are watched"), || watched(recorder.pid()) == wanted);
    eventually("there is a snapshot", || fs::metadata(&recording).is_ok_and(|file| file.len() > 10_000));
    recorder.interrupt();
    assert_eq!(recorder.wait(), 0, "{name}");
    let regions = succeed(&["report", "regions", file]);
    assert!(regions.contains("(inside: 1)"), "{name}: the first process of its PID namespace: {regions}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_container_of_podman_is_found_by_its_name_and_id() {
    prepare();
    let options = ["--detach", "--name", "web", "--pull", "never", "--network", "host", "--log-driver", "none"];
    let unconfined = ["--security-opt", "seccomp=unconfined"];
    let command = ["shell", "/bin/sh", "-c", SCRIPT];
    let pid = || podman(&["inspect", "--format", "{{.State.Pid}}", "web"]).parse::<u32>().unwrap();
    // It joins when it starts.
    assert_recorded("web", || {
        podman(&[&["run"], &options[..], &unconfined, &command].concat());
        pid()
    });
    let id = podman(&["inspect", "--format", "{{.Id}}", "web"]);
    assert_recorded(&id, pid);
    assert_recorded(&id[..12], pid);
    podman(&["rm", "--force", "--time", "0", "web"]);
}

/// Runs a container with crun alone, in the cgroup at this path. Returns its first process.
fn crun(id: &str, cgroup: &str) -> u32 {
    let bundle = format!("/tmp/{id}");
    made_root(&format!("{bundle}/rootfs"));
    let config = serde_json::json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/bin"], "args": ["/bin/sh", "-c", SCRIPT],
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"cgroupsPath": cgroup, "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}]},
    });
    fs::write(format!("{bundle}/config.json"), config.to_string()).unwrap();
    let pid_file = Path::new(&bundle).join("pid");
    let mut command = Command::new("crun");
    command.args(["--cgroup-manager=cgroupfs", "run", "--no-pivot", "--detach", "--bundle", &bundle, "--pid-file"]);
    // The container keeps the standard output.
    let status = command.arg(&pid_file).arg(id).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}");
    fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_container_is_found_in_the_cgroups_of_docker_and_kubernetes() {
    for (id, cgroup, wanted) in [
        ("docker", format!("/docker/{ID}"), ID),
        ("kubernetes", format!("/kubepods/besteffort/pod{POD}/{}", ID.replace('0', "f")), POD),
    ] {
        assert_recorded(wanted, || crun(id, &cgroup));
        must(Command::new("crun").args(["delete", "--force", id]));
    }
}
