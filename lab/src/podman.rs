//! Podman in a machine without a network whose root is an initramfs.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Once;

use crate::run;

/// Runs a command that must succeed. Returns what it printed.
pub fn must(command: &mut Command) -> String {
    let ran = run(command);
    assert_eq!(ran.status, 0, "{command:?}: {ran:?}");
    ran.out.trim().to_owned()
}

/// Podman with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let options = ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"];
    let mut command = Command::new("podman");
    command.args(options).args(["--runtime", "crun"]).args(arguments).stdin(Stdio::null());
    command
}

/// Runs podman, which must succeed. Returns what it printed.
pub fn podman(arguments: &[&str]) -> String {
    must(&mut command(arguments))
}

/// Makes the root directory of a container, with a shell.
pub fn made_root(directory: &str) {
    for name in ["bin", "proc", "dev"] {
        fs::create_dir_all(format!("{directory}/{name}")).unwrap();
    }
    fs::copy("/bin/busybox", format!("{directory}/bin/busybox")).unwrap();
    for name in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", format!("{directory}/bin/{name}")).unwrap();
    }
}

/// Makes the settings of podman, and the image `shell`, once in a machine, whichever test program comes first.
/// pivot_root(2) does not work here.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if run(&mut command(&["image", "exists", "shell"])).status == 0 {
            return;
        }
        fs::create_dir_all("/etc/containers").unwrap();
        fs::create_dir_all("/var/tmp").unwrap();
        fs::write("/etc/containers/policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
        fs::write("/etc/containers/containers.conf", "[engine]\nno_pivot_root = true\n").unwrap();
        made_root("/tmp/image");
        must(Command::new("tar").args(["-c", "-f", "/tmp/image.tar", "-C", "/tmp/image", "."]));
        podman(&["import", "--quiet", "/tmp/image.tar", "shell"]);
    });
}
