//! Lets perf find the USDT probes.

fn main() {
    // perf takes the address of a probe for its place in the file. LLD places code elsewhere, unless each segment has
    // pages of its own. Linkers of GNU do so already, and ignore the option.
    println!("cargo:rustc-link-arg-bins=-Wl,-z,separate-loadable-segments");
    println!("cargo:rerun-if-changed=build.rs");
}
