//! Finalizers: what keeps an object until somebody is done with it.

use reconcile::{Kind, Write};

pub(crate) fn has<K: Kind>(object: &K, finalizer: &str) -> bool {
    object.metadata().finalizers.iter().flatten().any(|one| one == finalizer)
}

pub(crate) fn added<K: Kind>(object: &K, finalizer: &str) -> Write {
    let mut object = object.clone();
    object.metadata_mut().finalizers.get_or_insert_default().push(finalizer.to_owned());
    Write::update(&object)
}

/// It may be gone already.
pub(crate) fn removed<K: Kind>(object: &K, finalizer: &str) -> Write {
    let mut object = object.clone();
    let finalizers = &mut object.metadata_mut().finalizers;
    if let Some(list) = finalizers {
        list.retain(|one| one != finalizer);
    }
    *finalizers = finalizers.take().filter(|list| !list.is_empty());
    Write::update(&object).accept(&["NotFound"])
}
