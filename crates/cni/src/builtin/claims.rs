//! Address allocations (IPAM) of sandboxes: one small file per sandbox, so that a crash at any point leaves whole claims.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::{Error, Result, write_atomically};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Claim {
    /// One of each of the node's ranges, in their order.
    pub addresses: Vec<IpAddr>,
    #[serde(default)]
    pub ports: Vec<Port>,
    /// For people who look into the folder.
    #[serde(default)]
    pub pod: String,
    /// Where the pod's end of its pair of devices is.
    #[serde(default)]
    pub namespace: PathBuf,
}

/// A port of the node that leads into the pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Port {
    pub protocol: u8,
    pub host_port: u16,
    pub container_port: u16,
    pub host_address: Option<IpAddr>,
}

pub struct Claims {
    folder: PathBuf,
    all: BTreeMap<String, Claim>,
    /// What was given last in each family: the search goes on behind it, so that an address rests before it is used again.
    last: BTreeMap<bool, IpAddr>,
}

impl Claims {
    pub fn open(state_dir: &Path) -> Result<Claims> {
        let folder = state_dir.join("claims");
        let fail = |source| Error::File { path: folder.clone(), source };
        linux::file::make_private_folder(&folder).map_err(fail)?;
        let mut claims = Claims { folder: folder.clone(), all: BTreeMap::new(), last: BTreeMap::new() };
        let mut newest = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                // Half-written by a crash, and never given to anyone.
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let fail = |source| Error::File { path: path.clone(), source };
            let bytes = std::fs::read(&path).map_err(fail)?;
            let claim: Claim = serde_json::from_slice(&bytes).map_err(|error| fail(error.into()))?;
            let time = path.metadata().and_then(|metadata| metadata.modified()).map_err(fail)?;
            for address in &claim.addresses {
                let found = newest.entry(address.is_ipv4()).or_insert((time, *address));
                if time >= found.0 {
                    *found = (time, *address);
                }
            }
            let sandbox = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            claims.all.insert(sandbox, claim);
        }
        claims.last = newest.into_iter().map(|(family, (_, address))| (family, address)).collect();
        Ok(claims)
    }

    pub fn get(&self, sandbox: &str) -> Option<&Claim> {
        self.all.get(sandbox)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Claim)> {
        self.all.iter()
    }

    /// The claim with the addresses that the sandbox has, or new ones; durable when this returns.
    pub fn claim(&mut self, sandbox: &str, ranges: &[IpNet], wanted: Claim) -> Result<Claim> {
        let addresses = match self.all.get(sandbox) {
            Some(claim) if claim.ports == wanted.ports && claim.namespace == wanted.namespace => {
                return Ok(claim.clone());
            }
            Some(claim) => claim.addresses.clone(),
            None => {
                let used: HashSet<IpAddr> = self.all.values().flat_map(|claim| claim.addresses.clone()).collect();
                let mut addresses = Vec::new();
                for range in ranges {
                    let last = self.last.get(&range.addr().is_ipv4()).copied();
                    addresses.push(free(range, &used, last).ok_or(Error::Full { range: *range })?);
                }
                addresses
            }
        };
        let claim = Claim { addresses, ..wanted };
        let bytes = serde_json::to_vec(&claim).expect("a claim can be written");
        write_atomically(&self.path(sandbox), &bytes)?;
        for address in &claim.addresses {
            self.last.insert(address.is_ipv4(), *address);
        }
        self.all.insert(sandbox.to_owned(), claim.clone());
        Ok(claim)
    }

    pub fn release(&mut self, sandbox: &str) -> Result<()> {
        let path = self.path(sandbox);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.map_err(|source| Error::File { path, source })?,
        }
        self.all.remove(sandbox);
        Ok(())
    }

    fn path(&self, sandbox: &str) -> PathBuf {
        self.folder.join(format!("{sandbox}.json"))
    }
}

/// The bridge's address: the first of the range.
pub fn gateway(range: &IpNet) -> IpAddr {
    at(range, 1)
}

/// The next address behind the last one that nobody has, once around.
fn free(range: &IpNet, used: &HashSet<IpAddr>, last: Option<IpAddr>) -> Option<IpAddr> {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    // Neither the network nor the gateway, and in IPv4 not the broadcast address. More than can ever be used at once
    // need not be searched.
    let end = (1_u128 << bits.min(64)) - u128::from(range.addr().is_ipv4());
    let count = end - 2;
    let start = last.filter(|last| range.contains(last)).map_or(0, |last| offset(range, last).saturating_sub(1));
    (0..count.min(used.len() as u128 + 2))
        .map(|step| at(range, 2 + (start + step) % count))
        .find(|address| !used.contains(address))
}

fn offset(range: &IpNet, address: IpAddr) -> u128 {
    match (range.network(), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => u128::from(u32::from(address) - u32::from(network)),
        (IpAddr::V6(network), IpAddr::V6(address)) => u128::from(address) - u128::from(network),
        _ => 0,
    }
}

fn at(range: &IpNet, offset: u128) -> IpAddr {
    match range.network() {
        IpAddr::V4(network) => Ipv4Addr::from(u32::from(network) + offset as u32).into(),
        IpAddr::V6(network) => Ipv6Addr::from(u128::from(network) + offset).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(claims: &mut Claims, sandbox: &str, ranges: &[&str]) -> Result<Vec<String>> {
        let ranges: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let claim = claims.claim(sandbox, &ranges, Claim::default())?;
        Ok(claim.addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_are_given_once_and_rest_before_they_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut claims = Claims::open(folder.path()).unwrap();
        let small = &["10.0.0.0/29"];
        for (sandbox, expected) in [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("a", "10.0.0.2"), ("c", "10.0.0.4")] {
            assert_eq!(claim(&mut claims, sandbox, small).unwrap(), [expected]);
        }
        claims.release("a").unwrap();
        assert_eq!(claim(&mut claims, "d", small).unwrap(), ["10.0.0.5"]);
        // After a restart the same is known, and what was half-written is gone.
        std::fs::write(folder.path().join("claims/x.new"), "{").unwrap();
        let mut claims = Claims::open(folder.path()).unwrap();
        assert!(!folder.path().join("claims/x.new").exists());
        assert_eq!(claim(&mut claims, "b", small).unwrap(), ["10.0.0.3"]);
        assert_eq!(claim(&mut claims, "e", small).unwrap(), ["10.0.0.6"]);
        assert_eq!(claim(&mut claims, "f", small).unwrap(), ["10.0.0.2"]);
        assert!(matches!(claim(&mut claims, "g", small), Err(Error::Full { .. })));
        claims.release("c").unwrap();
        assert_eq!(claim(&mut claims, "g", small).unwrap(), ["10.0.0.4"]);
    }

    #[test]
    fn two_families_give_two_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let mut claims = Claims::open(folder.path()).unwrap();
        let both = &["10.0.0.0/24", "fd00:1::/64"];
        assert_eq!(claim(&mut claims, "a", both).unwrap(), ["10.0.0.2", "fd00:1::2"]);
        assert_eq!(claim(&mut claims, "b", both).unwrap(), ["10.0.0.3", "fd00:1::3"]);
    }
}
