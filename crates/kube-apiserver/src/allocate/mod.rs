//! Addresses and node ports of Services. Each is claimed in the store before the Service is written, so that no two
//! Services get the same one, whichever API server they came through.

mod claim;
mod ports;
mod ranges;
mod repair;

use std::net::IpAddr;
use std::sync::Arc;

use api::core::service::{families, strategy};
use ipnet::IpNet;
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use rand::Rng;
use serde_json::{Value, json};

use crate::app::App;
use crate::call::Call;
use crate::resources::Resource;
use claim::{Claim, Holder};

pub use repair::repair;

/// How many random candidates are tried before the range is searched from its start.
const RANDOM_TRIES: usize = 32;

/// What was set aside for a write: given back unless the write took place.
#[must_use]
pub struct Reserved {
    app: Arc<App>,
    /// Claimed for this write.
    taken: Vec<Claim>,
    /// Given up by this write.
    freed: Vec<Claim>,
}

impl Reserved {
    fn nothing(app: &Arc<App>) -> Reserved {
        Reserved { app: app.clone(), taken: Vec::new(), freed: Vec::new() }
    }

    /// The write took place: what it took stays taken, what it gave up is free.
    pub async fn keep(mut self) {
        self.taken.clear();
        claim::release_all(&self.app, std::mem::take(&mut self.freed)).await;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if !taken.is_empty() {
            drop(claim::release_later(&self.app, taken));
        }
    }
}

pub(crate) async fn for_create(
    call: &Call,
    resource: &Resource,
    service: &mut Value,
    dry_run: bool,
) -> Result<Reserved, Status> {
    if !is_service(resource) {
        return Ok(Reserved::nothing(&call.app));
    }
    allocate(call, service, None, dry_run).await
}

pub(crate) async fn for_update(
    call: &Call,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
    dry_run: bool,
) -> Result<Reserved, Status> {
    if !is_service(resource) {
        return Ok(Reserved::nothing(&call.app));
    }
    strategy::patch_allocated(new, old);
    allocate(call, new, Some(old), dry_run).await
}

/// What a deleted Service held is free again, for the very next request too.
pub async fn release(app: &Arc<App>, resource: &Resource, old: &Value) {
    if is_service(resource) {
        claim::release_all(app, claims_of(old)).await;
    }
}

pub(crate) fn is_service(resource: &Resource) -> bool {
    resource.kind.group.is_empty() && resource.kind.plural == "services"
}

async fn allocate(call: &Call, service: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<Reserved, Status> {
    let app = &call.app;
    strategy::sync_cluster_ips(service, old);
    families::choose(service, old, &[family(app.settings.service_cidr.addr())])
        .map_err(|errors| refused(service, &errors))?;
    let mut allocation = Allocation {
        app,
        holder: Holder { namespace: service.namespace().into(), name: service.name().into() },
        before: old.map(claims_of).unwrap_or_default(),
        reserved: Reserved::nothing(app),
        dry_run,
        errors: Errors::default(),
    };
    allocation.address(service).await?;
    allocation.ports(service).await?;
    let Allocation { before, mut reserved, errors, .. } = allocation;
    if !errors.is_empty() {
        return Err(refused(service, &errors));
    }
    let after = claims_of(service);
    if !dry_run {
        reserved.freed = before.into_iter().filter(|claim| !after.contains(claim)).collect();
    }
    Ok(reserved)
}

/// One Service's claims while they are made.
struct Allocation<'a> {
    app: &'a Arc<App>,
    holder: Holder,
    /// What the stored Service holds already.
    before: Vec<Claim>,
    reserved: Reserved,
    dry_run: bool,
    errors: Errors,
}

/// Everything a Service holds by its spec.
fn claims_of(service: &Value) -> Vec<Claim> {
    let spec = &service["spec"];
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let addresses = addresses.filter_map(|text| text.parse().ok()).map(Claim::Address);
    let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_u64());
    let ports = ports.chain(spec["healthCheckNodePort"].as_u64()).filter(|port| *port != 0);
    let mut claims: Vec<Claim> = addresses.chain(ports.map(|port| Claim::Port(port as u16))).collect();
    claims.dedup();
    claims
}

impl Allocation<'_> {
    async fn address(&mut self, service: &mut Value) -> Result<(), Status> {
        let spec = &service["spec"];
        if !strategy::needs_cluster_ip(spec) || strategy::is_headless(spec) {
            return Ok(());
        }
        let given = spec["clusterIPs"].as_array().into_iter().flatten();
        let given: Vec<String> = given.filter_map(|address| address.as_str().map(Into::into)).collect();
        if given.is_empty() {
            let address = self.next_address().await?;
            service["spec"]["clusterIP"] = address.to_string().into();
            service["spec"]["clusterIPs"] = json!([address.to_string()]);
            return Ok(());
        }
        // What a Service holds stays its own: validation, which runs next, refuses another address.
        if self.before.iter().any(|claim| matches!(claim, Claim::Address(_))) {
            return Ok(());
        }
        for text in &given {
            // Not an address: validation, which runs next, says so in its own words.
            let Ok(address) = text.parse::<IpAddr>() else { continue };
            if let Some(why) = self.take_address(address).await? {
                let detail = format!("failed to allocate IP {text}: {why}");
                let shown = json!(given).to_string();
                self.errors.push(FieldError::new(Problem::Invalid, "spec.clusterIPs", shown, detail));
            }
        }
        Ok(())
    }

    /// Why an address that was asked for cannot be had.
    async fn take_address(&mut self, address: IpAddr) -> Result<Option<String>, Status> {
        let claim = Claim::Address(address);
        if self.before.contains(&claim) {
            return Ok(None);
        }
        if !ranges::that_give(self.app).iter().any(|range| range.contains(&address)) {
            let range = self.app.settings.service_cidr;
            let why =
                format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}");
            return Ok(Some(why));
        }
        Ok((!self.try_claim(&claim).await?).then(|| "provided IP is already allocated".into()))
    }

    async fn ports(&mut self, service: &mut Value) -> Result<(), Status> {
        if !strategy::needs_node_port(&service["spec"]) {
            return Ok(());
        }
        let automatic = strategy::allocates_node_ports(&service["spec"]);
        let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
        for index in 0..count {
            let wanted = service["spec"]["ports"][index]["nodePort"].as_u64().unwrap_or(0);
            if wanted != 0 {
                self.take_port(wanted, &format!("spec.ports[{index}].nodePort")).await?;
            } else if automatic {
                service["spec"]["ports"][index]["nodePort"] = self.next_port().await?.into();
            }
        }
        if strategy::needs_health_check(&service["spec"]) {
            let wanted = service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
            match wanted {
                0 => service["spec"]["healthCheckNodePort"] = self.next_port().await?.into(),
                _ => self.take_port(wanted, "spec.healthCheckNodePort").await?,
            }
        }
        Ok(())
    }

    async fn take_port(&mut self, wanted: u64, field: &str) -> Result<(), Status> {
        let range = &self.app.settings.node_ports;
        let claim = Claim::Port(u16::try_from(wanted).unwrap_or(0));
        // One number may serve several protocols of one Service. A dry run claims nothing, and upstream then does not
        // look either.
        if self.dry_run || self.before.contains(&claim) || self.reserved.taken.contains(&claim) {
            return Ok(());
        }
        let detail = if !u16::try_from(wanted).is_ok_and(|port| range.contains(&port)) {
            let (first, last) = (range.start(), range.end());
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
        } else if !self.try_claim(&claim).await? {
            "provided port is already allocated".into()
        } else {
            return Ok(());
        };
        self.errors.push(FieldError::new(Problem::Invalid, field, wanted.to_string(), detail));
        Ok(())
    }

    async fn next_address(&mut self) -> Result<IpAddr, Status> {
        for range in ranges::that_give(self.app) {
            if let Some(address) = self.next_address_of(range).await? {
                return Ok(address);
            }
        }
        let range = self.app.settings.service_cidr;
        Err(Status::internal(format!("failed to allocate a serviceIP: range {range} is full")))
    }

    async fn next_address_of(&mut self, range: IpNet) -> Result<Option<IpAddr>, Status> {
        let size = host_count(&range);
        // The start of the range is left to people who choose addresses by hand, as upstream leaves it.
        let kept = (size / 16).clamp(16, 256).min(size / 2);
        let random: Vec<u64> = (0..RANDOM_TRIES).map(|_| rand::rng().random_range(kept..size)).collect();
        for offset in random.into_iter().chain(kept..size).chain(0..kept) {
            let address = nth_address(&range, offset);
            if self.try_claim(&Claim::Address(address)).await? {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    async fn next_port(&mut self) -> Result<u16, Status> {
        let range = self.app.settings.node_ports.clone();
        let random: Vec<u16> = (0..RANDOM_TRIES).map(|_| rand::rng().random_range(range.clone())).collect();
        let known = ports::current(self.app).await?;
        for port in random.into_iter().chain(range).filter(|port| known.is_free(*port)) {
            if self.try_claim(&Claim::Port(port)).await? {
                return Ok(port);
            }
        }
        Err(Status::internal("failed to allocate a nodePort: range is full"))
    }

    /// Whether the claim is this Service's now; a dry run only looks.
    async fn try_claim(&mut self, claim: &Claim) -> Result<bool, Status> {
        if claim::is_taken(self.app, claim).await? {
            return Ok(false);
        }
        if self.dry_run {
            return Ok(true);
        }
        let taken = claim::take(self.app, claim, &self.holder).await?;
        if taken {
            self.reserved.taken.push(claim.clone());
        }
        Ok(taken)
    }
}

/// The first address of the range belongs to the Service `kubernetes`.
pub(crate) fn first_address(range: &IpNet) -> IpAddr {
    nth_address(range, 0)
}

/// Host addresses, without network and broadcast address; more than anyone can use are not counted.
fn host_count(range: &IpNet) -> u64 {
    let bits = range.max_prefix_len() - range.prefix_len();
    (1u64 << bits.min(20)).saturating_sub(2).max(1)
}

fn nth_address(range: &IpNet, offset: u64) -> IpAddr {
    match range.network() {
        IpAddr::V4(base) => IpAddr::from((u32::from(base).saturating_add(1 + offset as u32)).to_be_bytes()),
        IpAddr::V6(base) => IpAddr::from((u128::from(base).saturating_add(1 + u128::from(offset))).to_be_bytes()),
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn refused(service: &Value, errors: &Errors) -> Status {
    Status::invalid("", "Service", service.name(), errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_range() {
        let range: IpNet = "10.43.0.0/16".parse().unwrap();
        assert_eq!(first_address(&range).to_string(), "10.43.0.1");
        assert_eq!(host_count(&range), 65534);
        assert_eq!(nth_address(&range, 65533).to_string(), "10.43.255.254");
        let small: IpNet = "10.0.0.0/30".parse().unwrap();
        assert_eq!(host_count(&small), 2);
        let six: IpNet = "fd00::/112".parse().unwrap();
        assert_eq!(first_address(&six).to_string(), "fd00::1");
    }

    #[test]
    fn a_service_holds_its_addresses_and_ports() {
        let service = json!({"spec": {"clusterIPs": ["10.0.0.5"], "ports": [{"nodePort": 30000}, {"port": 1}], "healthCheckNodePort": 31000}});
        let address = Claim::Address("10.0.0.5".parse().unwrap());
        assert_eq!(claims_of(&service), [address, Claim::Port(30000), Claim::Port(31000)]);
        assert!(claims_of(&json!({"spec": {"clusterIPs": ["None"]}})).is_empty());
    }
}
