//! Names of the errors that the kernel returns for actions on memory.

use isotherm_core::scheme::Refusal;

/// The name of the system's error behind a refusal, such as `EAGAIN`; else its number, else the reason in words.
pub fn refusal_name(refusal: &Refusal) -> String {
    match refusal.code {
        Some(code) => name(code).map_or_else(|| format!("error {code}"), str::to_owned),
        None => refusal.reason.to_string(),
    }
}

/// The name of an error number of Linux, as on x86-64 and most others; none if it is not among these.
pub(super) fn name(errno: i32) -> Option<&'static str> {
    Some(match errno {
        1 => "EPERM",
        2 => "ENOENT",
        3 => "ESRCH",
        4 => "EINTR",
        5 => "EIO",
        9 => "EBADF",
        10 => "ECHILD",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        22 => "EINVAL",
        28 => "ENOSPC",
        38 => "ENOSYS",
        75 => "EOVERFLOW",
        95 => "EOPNOTSUPP",
        110 => "ETIMEDOUT",
        133 => "EHWPOISON",
        _ => return None,
    })
}
