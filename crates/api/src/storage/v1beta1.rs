//! storage.k8s.io/v1beta1: VolumeAttributesClass as in v1, which is stored.

use machinery::kind::{Convert, Kind};

use super::volumeattributesclass;
use crate::optional::named;

pub(crate) static VOLUME_ATTRIBUTES_CLASS: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.storage.v1beta1.VolumeAttributesClass",
    convert: Some(Convert {
        group: "storage.k8s.io",
        version: "v1",
        to_storage: |object| named(object, "storage.k8s.io/v1"),
        from_storage: |object| named(object, "storage.k8s.io/v1beta1"),
    }),
    ..volumeattributesclass::KIND
};
