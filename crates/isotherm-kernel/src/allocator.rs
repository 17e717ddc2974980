//! How the allocator of the C library works.

#![allow(unsafe_code, reason = "rustix and nix have no mallopt(3)")]

/// Lets the allocator keep what is freed for the next allocation, up to 1 GiB, instead of giving it back to the kernel.
/// It is for programs that make and drop large tables again and again. Other C libraries than glibc stay as they are.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 32 << 20)] {
        // SAFETY: it changes two numbers of the allocator, under its lock. An old one stays if the new one is refused.
        unsafe { libc::mallopt(parameter, value) };
    }
}
