//! What is known about which pages of a block other processes map.

use isotherm_core::survey::PageBits;

/// What is known about the pages of a block.
///
/// Hundreds of processes may map the same gigabytes, and each has a block of its own for each 2 MiB of them. So a block
/// takes 40 bytes if other processes map all of its pages, or none.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    shared: Pages,
    exclusive: Pages,
    /// `None` if there are no such pages.
    rare: Option<Box<Rare>>,
}

/// Pages of a block.
#[derive(Clone, Debug, Default)]
enum Pages {
    #[default]
    None,
    All,
    Some(Box<PageBits>),
}

/// Pages that most blocks do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rare {
    second: PageBits,
    aged: PageBits,
    left: PageBits,
}

impl Pages {
    fn get(&self) -> PageBits {
        match self {
            Self::None => PageBits::NONE,
            Self::All => PageBits::ALL,
            Self::Some(pages) => **pages,
        }
    }
}

impl From<PageBits> for Pages {
    fn from(pages: PageBits) -> Self {
        if pages.is_empty() {
            Self::None
        } else if pages == PageBits::ALL {
            Self::All
        } else {
            Self::Some(Box::new(pages))
        }
    }
}

impl Sharing {
    /// Pages that other processes map.
    pub(super) fn shared(&self) -> PageBits {
        self.shared.get()
    }

    /// Pages that no other process maps.
    pub(super) fn exclusive(&self) -> PageBits {
        self.exclusive.get()
    }

    /// Pages that the process maps at a lower address too.
    pub(super) fn second(&self) -> PageBits {
        self.rare().second
    }

    /// The shared pages that are still to be cleared, if the cgroup was aged in this survey or not.
    pub(super) fn rest(&self, aged: bool) -> PageBits {
        if aged { self.rare().left } else { self.shared() }
    }

    /// Takes in that other processes map some pages, and do not map others.
    pub(super) fn learn(&mut self, shared: PageBits, exclusive: PageBits) {
        let (known_shared, known_exclusive) = (self.shared(), self.exclusive());
        self.shared = ((known_shared | shared) & !exclusive).into();
        self.exclusive = ((known_exclusive | exclusive) & !shared).into();
    }

    /// Forgets which pages no other process maps.
    pub(super) fn doubt(&mut self) {
        self.exclusive = Pages::None;
    }

    /// Sets which pages the process maps at a lower address too.
    pub(super) fn set_second(&mut self, second: PageBits) {
        self.change_rare(|rare| rare.second = second);
    }

    /// Forgets which shared pages the last aging has left.
    pub(super) fn forget_left(&mut self) {
        self.change_rare(|rare| rare.left = PageBits::NONE);
    }

    /// Takes in which accessed pages aging has cleared, and which are still accessed. Returns the shared ones among the
    /// latter that no aging was seen to clear.
    pub(super) fn age(&mut self, cleared: PageBits, still: PageBits) -> PageBits {
        let shared = self.shared();
        self.change_rare(|rare| {
            rare.aged |= cleared & shared;
            rare.left = still & shared & !rare.aged;
        });
        self.rare().left
    }

    fn rare(&self) -> Rare {
        self.rare.as_deref().copied().unwrap_or_default()
    }

    fn change_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        let mut rare = self.rare();
        change(&mut rare);
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }
}

const _: () = assert!(size_of::<Sharing>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_last_holds() {
        let [low, high] = [PageBits::of(0..300), PageBits::of(300..512)];
        let mut sharing = Sharing::default();
        sharing.learn(PageBits::ALL, PageBits::NONE);
        sharing.learn(PageBits::NONE, low);
        assert_eq!((sharing.shared(), sharing.exclusive()), (high, low));
        sharing.doubt();
        sharing.learn(low, PageBits::NONE);
        assert_eq!((sharing.shared(), sharing.exclusive()), (PageBits::ALL, PageBits::NONE));
    }

    #[test]
    fn aging_leaves_the_shared_pages_that_it_was_never_seen_to_clear() {
        let mut sharing = Sharing::default();
        sharing.learn(PageBits::of(0..100), PageBits::NONE);
        assert_eq!(sharing.age(PageBits::of(0..20), PageBits::of(20..512)), PageBits::of(20..100));
        assert_eq!(sharing.age(PageBits::NONE, PageBits::of(0..30)), PageBits::of(20..30));
        assert_eq!((sharing.rest(true), sharing.rest(false)), (PageBits::of(20..30), PageBits::of(0..100)));
        sharing.forget_left();
        assert_eq!(sharing.rest(true), PageBits::NONE);
    }
}
