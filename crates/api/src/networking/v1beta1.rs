//! networking.k8s.io/v1beta1: IPAddress and ServiceCIDR as in v1, which is stored.

use machinery::kind::{Convert, Kind};

use super::{ipaddress, servicecidr};
use crate::optional::named;

pub(crate) static IP_ADDRESS: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.networking.v1beta1.IPAddress",
    convert: Some(CONVERT),
    ..ipaddress::KIND
};

pub(crate) static SERVICE_CIDR: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.networking.v1beta1.ServiceCIDR",
    convert: Some(CONVERT),
    ..servicecidr::KIND
};

const CONVERT: Convert = Convert {
    group: "networking.k8s.io",
    version: "v1",
    to_storage: |object| named(object, "networking.k8s.io/v1"),
    from_storage: |object| named(object, "networking.k8s.io/v1beta1"),
};
