//! What is known of Services and their endpoints: only what answers need, in little memory, found by the bytes of a question.
//! A change of one object touches that object's entries and no others.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::wire::Name;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service's name and namespace as two labels, as they stand in a question.
pub type Key = Box<[u8]>;

#[derive(Default)]
pub struct Index {
    namespaces: HashSet<Box<[u8]>>,
    served: HashMap<Key, Served>,
    /// Services by their cluster addresses.
    by_address: HashMap<IpAddr, Vec<Key>>,
    /// Services that have an endpoint with a host name, by its address.
    by_endpoint: HashMap<IpAddr, Vec<Key>>,
}

/// Everything about one name. Slices may come before their Service and stay after it.
#[derive(Default)]
pub struct Served {
    pub service: Option<Kind>,
    slices: Vec<Slice>,
}

pub enum Kind {
    Cluster {
        addresses: Box<[IpAddr]>,
        ports: Box<[Port]>,
    },
    Headless,
    External(Name),
    /// An `ExternalName` that is no name; there is nothing to answer with.
    Nameless,
}

pub struct Slice {
    name: Box<str>,
    pub endpoints: Box<[Endpoint]>,
    pub ports: Box<[Port]>,
}

pub struct Endpoint {
    pub address: IpAddr,
    pub host_name: Option<Box<str>>,
}

pub struct Port {
    name: Box<str>,
    protocol: Box<str>,
    /// A Service or slice without ports has one without a number, which has addresses but no SRV records.
    pub number: Option<u16>,
}

impl Port {
    /// Nothing matches every port.
    pub fn is(&self, name: Option<&[u8]>, protocol: Option<&[u8]>) -> bool {
        let same =
            |asked: Option<&[u8]>, own: &str| asked.is_none_or(|asked| asked.eq_ignore_ascii_case(own.as_bytes()));
        same(name, &self.name) && same(protocol, &self.protocol)
    }
}

impl Endpoint {
    /// The label before the Service's name: the host name, or the address with dashes.
    pub fn label(&self) -> String {
        if let Some(name) = &self.host_name {
            return name.to_string();
        }
        let mut text = self.address.to_string().replace(['.', ':'], "-");
        if text.ends_with('-') {
            // No label ends with a dash.
            text.push('0');
        }
        text
    }
}

impl Served {
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    fn is_empty(&self) -> bool {
        self.service.is_none() && self.slices.is_empty()
    }
}

impl Index {
    pub(crate) fn has_namespace(&self, label: &[u8]) -> bool {
        self.namespaces.contains(label)
    }

    pub fn get(&self, key: &[u8]) -> Option<&Served> {
        self.served.get(key)
    }

    /// With the key as it is kept here.
    pub(crate) fn get_with_key(&self, key: &[u8]) -> Option<(&[u8], &Served)> {
        self.served.get_key_value(key).map(|(key, served)| (&**key, served))
    }

    /// The first Service that has this cluster address.
    pub(crate) fn with_address(&self, address: &IpAddr) -> Option<&[u8]> {
        self.by_address.get(address)?.first().map(|key| &**key)
    }

    /// The host names of that address, each with its Service.
    pub fn host_names(&self, address: IpAddr) -> Vec<(&str, &[u8])> {
        let mut found = Vec::new();
        for key in self.by_endpoint.get(&address).into_iter().flatten() {
            let slices = self.get(key).map(Served::slices).unwrap_or_default();
            for endpoint in slices.iter().flat_map(|slice| &slice.endpoints).filter(|one| one.address == address) {
                if let Some(name) = &endpoint.host_name
                    && !found.contains(&(&**name, &**key))
                {
                    found.push((&**name, &**key));
                }
            }
        }
        found
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let maps = self.by_address.is_empty() && self.by_endpoint.is_empty();
        maps && self.served.is_empty() && self.namespaces.is_empty()
    }

    pub(crate) fn set_namespace(&mut self, name: &str, exists: bool) {
        let label: Box<[u8]> = name.to_ascii_lowercase().into_bytes().into();
        if exists { _ = self.namespaces.insert(label) } else { _ = self.namespaces.remove(&label) }
    }

    /// A Service before and after a change.
    pub(crate) fn set_service(&mut self, old: Option<&Service>, new: Option<&Service>) {
        if let Some(key) = old.and_then(|old| key_of(&old.metadata, old.metadata.name.as_deref())) {
            if let Some(served) = self.served.get_mut(&key)
                && let Some(Kind::Cluster { addresses, .. }) = served.service.take()
            {
                addresses.iter().for_each(|address| forget(&mut self.by_address, address, &key));
            }
            self.tidy(&key);
        }
        if let Some(new) = new
            && let Some(key) = key_of(&new.metadata, new.metadata.name.as_deref())
        {
            let kind = kind_of(new);
            if let Kind::Cluster { addresses, .. } = &kind {
                addresses.iter().for_each(|address| remember(&mut self.by_address, *address, &key));
            }
            self.served.entry(key).or_default().service = Some(kind);
        }
    }

    /// A slice before and after a change.
    pub(crate) fn set_slice(&mut self, old: Option<&EndpointSlice>, new: Option<&EndpointSlice>) {
        if let Some((key, name)) = old.and_then(slice_key) {
            let mut gone = Vec::new();
            if let Some(served) = self.served.get_mut(&key)
                && let Some(at) = served.slices.iter().position(|slice| &*slice.name == name)
            {
                let slice = served.slices.swap_remove(at);
                gone.extend(slice.endpoints.iter().filter(|one| one.host_name.is_some()).map(|one| one.address));
                // Another slice may have the same address, while one takes over from the other.
                let others = served.slices.iter().flat_map(|slice| &slice.endpoints);
                for kept in others.filter(|one| one.host_name.is_some()) {
                    gone.retain(|address| *address != kept.address);
                }
            }
            gone.iter().for_each(|address| forget(&mut self.by_endpoint, address, &key));
            self.tidy(&key);
        }
        if let Some(new) = new
            && let Some((key, name)) = slice_key(new)
        {
            let slice = slice_of(new, name);
            for endpoint in slice.endpoints.iter().filter(|one| one.host_name.is_some()) {
                remember(&mut self.by_endpoint, endpoint.address, &key);
            }
            self.served.entry(key).or_default().slices.push(slice);
        }
    }

    fn tidy(&mut self, key: &[u8]) {
        if self.served.get(key).is_some_and(Served::is_empty) {
            self.served.remove(key);
        }
    }
}

fn remember(map: &mut HashMap<IpAddr, Vec<Key>>, address: IpAddr, key: &Key) {
    let keys = map.entry(address).or_default();
    if !keys.contains(key) {
        keys.push(key.clone());
    }
}

fn forget(map: &mut HashMap<IpAddr, Vec<Key>>, address: &IpAddr, key: &[u8]) {
    if let Some(keys) = map.get_mut(address) {
        keys.retain(|one| **one != *key);
        if keys.is_empty() {
            map.remove(address);
        }
    }
}

fn key_of(metadata: &ObjectMeta, name: Option<&str>) -> Option<Key> {
    let (name, namespace) = (name?, metadata.namespace.as_deref()?);
    let name = Name::below([name.as_bytes(), namespace.as_bytes()], &Name::root())?;
    // Without the root.
    Some(name.bytes()[..name.bytes().len() - 1].into())
}

fn slice_key(slice: &EndpointSlice) -> Option<(Key, &str)> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some((key_of(&slice.metadata, Some(service))?, slice.metadata.name.as_deref()?))
}

fn kind_of(service: &Service) -> Kind {
    let Some(spec) = &service.spec else { return Kind::Headless };
    if spec.type_.as_deref() == Some("ExternalName") {
        let target = spec.external_name.as_deref().filter(|name| name.parse::<IpAddr>().is_err());
        return target.and_then(Name::parse).map_or(Kind::Nameless, Kind::External);
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return Kind::Headless;
    }
    let addresses = match spec.cluster_ips.as_deref() {
        Some(addresses) if !addresses.is_empty() => addresses,
        _ => spec.cluster_ip.as_slice(),
    };
    let ports = spec.ports.iter().flatten().map(|port| Port {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: port.protocol.as_deref().unwrap_or("TCP").into(),
        number: u16::try_from(port.port).ok(),
    });
    Kind::Cluster {
        addresses: addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        ports: or_one_without_number(ports.collect()),
    }
}

fn slice_of(slice: &EndpointSlice, name: &str) -> Slice {
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let endpoints = slice.endpoints.iter().flatten().filter(is_ready).flat_map(|endpoint| {
        let host_name = endpoint.hostname.as_deref().filter(|name| !name.is_empty());
        let parsed = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
        parsed.map(move |address| Endpoint { address, host_name: host_name.map(Into::into) })
    });
    let ports = slice.ports.iter().flatten().map(|port| Port {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: port.protocol.as_deref().unwrap_or_default().into(),
        number: port.port.and_then(|number| u16::try_from(number).ok()),
    });
    Slice { name: name.into(), endpoints: endpoints.collect(), ports: or_one_without_number(ports.collect()) }
}

fn or_one_without_number(ports: Vec<Port>) -> Box<[Port]> {
    if ports.is_empty() { [Port { name: "".into(), protocol: "".into(), number: None }].into() } else { ports.into() }
}
