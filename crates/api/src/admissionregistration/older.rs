//! admissionregistration.k8s.io/v1beta1 and v1alpha1: mutating policies and their bindings as in v1, which is stored.

use machinery::kind::{Convert, Kind};

use super::{mutatingadmissionpolicy, mutatingadmissionpolicybinding};
use crate::optional::named;

pub(crate) static POLICY_V1BETA1: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.admissionregistration.v1beta1.MutatingAdmissionPolicy",
    convert: Some(BETA),
    ..mutatingadmissionpolicy::KIND
};

pub(crate) static BINDING_V1BETA1: Kind = Kind {
    version: "v1beta1",
    schema: "io.k8s.api.admissionregistration.v1beta1.MutatingAdmissionPolicyBinding",
    convert: Some(BETA),
    ..mutatingadmissionpolicybinding::KIND
};

pub(crate) static POLICY_V1ALPHA1: Kind = Kind {
    version: "v1alpha1",
    schema: "io.k8s.api.admissionregistration.v1alpha1.MutatingAdmissionPolicy",
    convert: Some(ALPHA),
    ..mutatingadmissionpolicy::KIND
};

pub(crate) static BINDING_V1ALPHA1: Kind = Kind {
    version: "v1alpha1",
    schema: "io.k8s.api.admissionregistration.v1alpha1.MutatingAdmissionPolicyBinding",
    convert: Some(ALPHA),
    ..mutatingadmissionpolicybinding::KIND
};

const BETA: Convert = Convert {
    group: "admissionregistration.k8s.io",
    version: "v1",
    to_storage: |object| named(object, "admissionregistration.k8s.io/v1"),
    from_storage: |object| named(object, "admissionregistration.k8s.io/v1beta1"),
};

const ALPHA: Convert =
    Convert { from_storage: |object| named(object, "admissionregistration.k8s.io/v1alpha1"), ..BETA };
