//! resource.k8s.io/v1beta2: shapes as in v1, which is stored.

use machinery::kind::{Convert, Kind};

use super::{deviceclass, resourceclaim, resourceclaimtemplate, resourceslice};
use crate::optional::named;

pub(crate) static DEVICE_CLASS: Kind = Kind {
    version: "v1beta2",
    schema: "io.k8s.api.resource.v1beta2.DeviceClass",
    convert: Some(CONVERT),
    ..deviceclass::KIND
};

pub(crate) static RESOURCE_CLAIM: Kind = Kind {
    version: "v1beta2",
    schema: "io.k8s.api.resource.v1beta2.ResourceClaim",
    convert: Some(CONVERT),
    ..resourceclaim::KIND
};

pub(crate) static RESOURCE_CLAIM_TEMPLATE: Kind = Kind {
    version: "v1beta2",
    schema: "io.k8s.api.resource.v1beta2.ResourceClaimTemplate",
    convert: Some(CONVERT),
    ..resourceclaimtemplate::KIND
};

pub(crate) static RESOURCE_SLICE: Kind = Kind {
    version: "v1beta2",
    schema: "io.k8s.api.resource.v1beta2.ResourceSlice",
    convert: Some(CONVERT),
    ..resourceslice::KIND
};

const CONVERT: Convert = Convert {
    group: "resource.k8s.io",
    version: "v1",
    to_storage: |object| named(object, "resource.k8s.io/v1"),
    from_storage: |object| named(object, "resource.k8s.io/v1beta2"),
};
