//! Where a USDT probe has its first argument.
//!
//! The assembler has written this into the note of the probe, as an operand of the AT&T syntax behind its size:
//! `8@%rdi`, `8@-16(%rbp)`, `8@(%rax,%rcx,8)` or `8@$4198400`.

/// The registers, each at the index that it has in `struct pt_regs`, in steps of 8 bytes (ptrace(2)).
const REGISTERS: [(&str, u64); 17] = [
    ("r15", 0),
    ("r14", 1),
    ("r13", 2),
    ("r12", 3),
    ("rbp", 4),
    ("rbx", 5),
    ("r11", 6),
    ("r10", 7),
    ("r9", 8),
    ("r8", 9),
    ("rax", 10),
    ("rcx", 11),
    ("rdx", 12),
    ("rsi", 13),
    ("rdi", 14),
    ("rip", 16),
    ("rsp", 19),
];

/// Kinds of arguments, as in `hits.bpf.c`.
const CONSTANT: u64 = 1;
const REGISTER: u64 = 2;
const MEMORY: u64 = 3;
/// The index of a register that stands for none.
const NO_REGISTER: u64 = 31;

/// Where a pointer is when a probe is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Argument {
    /// There is no argument, or it is no pointer, or its place is not understood.
    #[default]
    None,
    Constant(i32),
    Register(u64),
    Memory {
        base: u64,
        index: Option<u64>,
        /// The index is shifted left by this many bits.
        shift: u64,
        offset: i32,
    },
}

impl Argument {
    /// The first of these arguments, which are separated by spaces.
    pub(super) fn first(arguments: &str) -> Self {
        // Operands have no spaces.
        arguments.split_ascii_whitespace().next().and_then(Self::read).unwrap_or_default()
    }

    fn read(argument: &str) -> Option<Self> {
        let (size, operand) = argument.split_once('@')?;
        // A negative size stands for a signed number.
        if size.trim_start_matches('-') != "8" {
            return None;
        }
        if let Some(constant) = operand.strip_prefix('$') {
            return number(constant).map(Self::Constant);
        }
        if operand.starts_with('%') {
            return register(operand).map(Self::Register);
        }
        let (offset, rest) = operand.strip_suffix(')')?.split_once('(')?;
        let offset = if offset.is_empty() { 0 } else { number(offset)? };
        let mut parts = rest.split(',').map(str::trim);
        let base = register(parts.next()?)?;
        let index = parts.next().map(register);
        let shift = match parts.next() {
            None | Some("1") => 0,
            Some("2") => 1,
            Some("4") => 2,
            Some("8") => 3,
            Some(_) => return None,
        };
        let index = match index {
            Some(index) => Some(index?),
            None => None,
        };
        parts.next().is_none().then_some(Self::Memory { base, index, shift, offset })
    }

    /// The place as `hits.bpf.c` reads it, with the index of the probe and the number of the file.
    pub(super) fn cookie(self, probe: u8, file: u8) -> u64 {
        let parts = |kind, offset: i32, base, index, shift| {
            kind << 48 | base << 50 | index << 55 | shift << 60 | u64::from(offset.cast_unsigned())
        };
        let place = match self {
            Self::None => 0,
            Self::Constant(value) => parts(CONSTANT, value, 0, NO_REGISTER, 0),
            Self::Register(register) => parts(REGISTER, 0, register, NO_REGISTER, 0),
            Self::Memory { base, index, shift, offset } => {
                parts(MEMORY, offset, base, index.unwrap_or(NO_REGISTER), shift)
            }
        };
        place | u64::from(probe) << 32 | u64::from(file) << 40
    }
}

fn register(name: &str) -> Option<u64> {
    let name = name.strip_prefix('%')?;
    REGISTERS.iter().find(|(known, _)| *known == name).map(|(_, index)| *index)
}

fn number(text: &str) -> Option<i32> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x") {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None => digits.parse::<i64>(),
    };
    i32::try_from(value.ok()? * sign).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operands_of_compilers_are_read() {
        assert_eq!(Argument::first("8@%rdi -4@$3"), Argument::Register(14));
        assert_eq!(Argument::first("-8@$4198400"), Argument::Constant(4_198_400));
        let memory = |base, index, shift, offset| Argument::Memory { base, index, shift, offset };
        assert_eq!(Argument::first("8@-16(%rbp)"), memory(4, None, 0, -16));
        assert_eq!(Argument::first("8@(%rsp)"), memory(19, None, 0, 0));
        assert_eq!(Argument::first("8@0x10(%rax,%rcx,8)"), memory(10, Some(11), 3, 16));
        assert_eq!(Argument::first("8@(%rax,%rcx)"), memory(10, Some(11), 0, 0));
    }

    #[test]
    fn what_is_no_pointer_or_not_understood_is_no_argument() {
        let wrong = ["", "8@", "4@%edi", "@%rdi", "8@%xmm0", "8@text(%rip)", "8@(%rax,%rcx,3)", "8@(%rax,%rcx,8,1)"];
        let wrong = wrong.iter().chain(&["8@(", "8@)", "8@()", "8@$", "8@$--1", "8@$9223372036854775807", "8@(%rax,)"]);
        for wrong in wrong {
            assert_eq!(Argument::first(wrong), Argument::None, "{wrong}");
        }
    }

    #[test]
    fn a_cookie_has_the_place_the_probe_and_the_file() {
        assert_eq!(Argument::None.cookie(7, 9), 7 << 32 | 9 << 40);
        let cookie = Argument::Memory { base: 4, index: Some(11), shift: 3, offset: -1 }.cookie(0xff, 0xff);
        assert_eq!(cookie, 3 << 60 | 11 << 55 | 4 << 50 | 3 << 48 | 0xffff_ffff_ffff);
        assert_eq!(Argument::Register(14).cookie(0, 0) >> 48 & 3, REGISTER);
    }
}
