//! The panel: single pages are read and cleared at any time, as samples are.

use isotherm_core::{BoxError, PageLook, PageProbe, Sample};

use super::BpfProbe;
use super::leaf::Extent;

impl PageProbe for BpfProbe {
    fn look(&mut self, pages: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        self.look_up(pages)?;
        looks.extend(self.leaves.iter().map(|leaf| PageLook {
            present: leaf.extent().is_some(),
            accessed: leaf.young(),
            huge: matches!(leaf.extent(), Some(Extent::Huge | Extent::Gigantic)),
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
