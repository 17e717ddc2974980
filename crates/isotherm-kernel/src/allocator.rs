//! How the allocator of the C library works.

#![allow(unsafe_code, reason = "rustix and nix have no mallopt(3) and malloc_trim(3)")]

/// Lets the allocator keep what is freed for the next allocation, up to 1 GiB, instead of giving it back to the kernel.
/// It is for programs that make and drop large tables again and again. Other C libraries than glibc stay as they are.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 32 << 20)] {
        // SAFETY: it changes two numbers of the allocator, under its lock. An old one stays if the new one is refused.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Lets all threads allocate from the same memory, so that what one of them frees is used by the others, and allocates
/// pieces of 1 MiB and more apart, so that they go back to the kernel at once and leave no holes. It is for programs
/// that run for long, with threads that allocate little at a time. Other C libraries than glibc stay as they are.
pub fn share_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 1 << 20)] {
        // SAFETY: as above.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives memory that was freed back to the kernel, which takes 1 to 5 ms for 50 MiB. Other C libraries than glibc do
/// nothing.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes nothing but memory that is free, under the locks of the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
}
