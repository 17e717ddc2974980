//! The panel: single pages are read and cleared at any time, as samples are, and it is found out which targets have
//! run.

use isotherm_core::{Activity, AtRest, BoxError, PageLook, PageProbe, Sample, TargetId};

use super::BpfProbe;
use super::leaf::Extent;
use super::space::SpaceHandle;

impl PageProbe for BpfProbe {
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        self.look_up(pages)?;
        looks.extend(self.leaves.iter().zip(pages).map(|(leaf, page)| PageLook {
            present: leaf.extent().is_some(),
            accessed: leaf.young(),
            huge: matches!(leaf.extent(), Some(Extent::Huge | Extent::Gigantic)),
            frame: leaf.frame(page.addr),
        }));
        Ok(())
    }

    fn clear_pages(&mut self, pages: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError> {
        // The samples that wait to be read keep what is known of them.
        let of_samples = std::mem::take(&mut self.unobservable);
        let result = self.clear_looked_up(pages);
        cleared.extend(self.unobservable.iter().map(|unobservable| !unobservable));
        self.unobservable = of_samples;
        Ok(result?)
    }
}

impl Activity for BpfProbe {
    fn look(&mut self) -> Result<(), BoxError> {
        if let Some(tasks) = &mut self.tasks {
            tasks.look();
        }
        Ok(())
    }

    fn rest(&self, target: TargetId) -> Option<AtRest> {
        let target = self.held(target).filter(|target| !target.elsewhere().is_accessed_at_rest())?;
        let space = target.space().map(SpaceHandle::identity)?;
        self.tasks.as_ref()?.mark(space).map(AtRest)
    }
}
