//! The daemon under load, while processes come and go, and killed again and again.

mod churned;
mod kills;
mod load;
mod served;

pub use churned::{Churned, churned};
pub use kills::{Killed, kills};
pub use load::{Load, Loaded, load};
pub use served::{Rounds, Served};
