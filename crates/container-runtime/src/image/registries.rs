//! `registries.yaml`, as k3s reads it: mirrors, credentials and private authorities.

#[derive(Clone, Debug, Default)]
pub struct Registries {}
