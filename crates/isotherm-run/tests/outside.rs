//! A program outside of this workspace that uses isotherm.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_program_that_depends_on_this_crate_alone_can_be_built_anywhere() {
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = this.ancestors().nth(2).unwrap();
    let place = tempfile::tempdir().unwrap();
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    // The same profile and the same versions, so that libraries are compiled once for all runs of this test.
    let profile = &manifest[manifest.find("[profile.dev]").unwrap()..];
    let program = format!(
        "[package]\nname = \"outside\"\nedition = \"2024\"\n[dependencies]\nisotherm-run = {{ path = {this:?} }}\n\
         [workspace]\n{profile}"
    );
    fs::write(place.path().join("Cargo.toml"), program).unwrap();
    fs::copy(workspace.join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();
    fs::create_dir(place.path().join("src")).unwrap();
    fs::copy(this.join("examples/embed.rs"), place.path().join("src/main.rs")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--target-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(""))
        .current_dir(&place)
        // From .cargo/config.toml of the workspace, which a program elsewhere does not have.
        .env_remove("LIBBPF_SYS_LIBRARY_PATH")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
