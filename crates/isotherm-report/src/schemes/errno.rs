//! Names of the errors that the kernel returns for actions on memory.

use isotherm_core::scheme::Refusal;

/// The name of the system's error behind a refusal, such as `EAGAIN`.
///
/// Without an error: the number, or else the reason in words. A reason that this version does not know is named as the
/// recording names it.
pub fn refusal_name(refusal: &Refusal, unknown_reason: Option<&str>) -> String {
    match (refusal.code, unknown_reason) {
        (Some(code), _) if name(code).is_some() => name(code).unwrap_or_default().to_owned(),
        (_, Some(reason)) => reason.to_owned(),
        (Some(code), None) => format!("error {code}"),
        (None, None) => refusal.reason.to_string(),
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
