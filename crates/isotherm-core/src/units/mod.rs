//! Sizes, times, shares and counts as text: the one parser and the one formatter of the workspace.
//!
//! The `parse_*` functions read what people write. They accept a superset of what the formatter writes, and they
//! never panic.
//!
//! | quantity | accepted | bare number |
//! |---|---|---|
//! | size | `4096`, `64K`, `2MB`, `1.5 GiB`, `1,024 B` | bytes |
//! | time | `100ms`, `5s`, `1.5h`, `2m 30s` | refused, but for `0` |
//! | share | `0.05`, `5%` | a share of 1 |
//! | count | `1000`, `1,000` | the count |
//! | address | `0x7f0000000000`, `4096`, `4GiB` | bytes |
//!
//! Units of sizes are powers of 1,024, whatever letters follow the first and in either case: `K`, `kB` and `KiB`
//! are the same. damo and the papers on DAMON use them in that way. Arithmetic is exact: a whole number is never
//! rounded, and a fraction is rounded once, to the nearest byte or nanosecond.
//!
//! [`bytes`], [`duration`], [`percent`], [`hertz`] and [`count`] write measured figures, with three digits at most
//! where that suffices. The functions in [`setting`] write what a user has set, with up to two decimals.

mod format;
mod number;
mod parse;
mod ranges;
pub mod setting;

pub use format::{
    bounded, bounds, bytes, count, counted, duration, hertz, nanoseconds, percent, table_bytes, table_hertz,
};
pub use parse::{
    A_COUNT, A_FREQUENCY, A_SHARE, A_SIZE, A_TIME, QuantityError, parse_address, parse_bytes, parse_count,
    parse_decimal, parse_duration, parse_duration_or, parse_hertz, parse_share, parse_share_of,
};
pub use ranges::{parse_address_range, parse_count_range, parse_time_range};
