//! Keys by the value of one selectable field: who asks for the objects of one value, as every kubelet does for its own pods,
//! looks at these and not at all there are.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Item;

/// Made when it is first asked for, and of one field only: keeping it costs memory for every object.
#[derive(Default)]
pub(super) struct ByField {
    /// The field's place in descriptions, and the keys of those that have each value.
    kept: Option<(usize, KeysByValue)>,
}

type KeysByValue = HashMap<Box<str>, BTreeSet<Arc<str>>>;

impl ByField {
    /// The keys of those whose field, by its place in their descriptions, has that value; none where another field is kept.
    pub fn keys(&self, at: usize, value: &str) -> Option<impl Iterator<Item = &Arc<str>>> {
        let (_, keys) = self.kept.as_ref().filter(|(kept, _)| *kept == at)?;
        Some(keys.get(value).into_iter().flatten())
    }

    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    pub fn keep<'a>(&mut self, at: usize, items: impl Iterator<Item = &'a Arc<Item>>) {
        self.kept = Some((at, HashMap::new()));
        items.for_each(|item| self.change(None, Some(item)));
    }

    /// An object has changed, come or gone.
    pub fn change(&mut self, before: Option<&Item>, now: Option<&Item>) {
        let Some((at, keys)) = &mut self.kept else { return };
        let value = |item: &Item| -> Box<str> { item.description.fields.get(*at).cloned().unwrap_or_default() };
        let (gone, come) = (before.map(value), now.map(value));
        if gone == come {
            return;
        }
        if let (Some(value), Some(item)) = (gone, before)
            && let Some(with) = keys.get_mut(&value)
        {
            with.remove(&item.key);
            if with.is_empty() {
                keys.remove(&value);
            }
        }
        if let (Some(value), Some(item)) = (come, now) {
            keys.entry(value).or_default().insert(item.key.clone());
        }
    }

    pub fn clear(&mut self) {
        if let Some((_, keys)) = &mut self.kept {
            keys.clear();
        }
    }
}
