//! Validation of ResourceClaim. What it asks for is for ever.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use machinery::object::Meta;

use super::super::claim::{self, RequestNames};
use super::super::devices;
use super::shares::share;
use crate::check;
use crate::core::selectors::node_selector;

const RESERVED_FOR_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
/// Those of the classes and those of the claim.
const CONFIGS_MAX: usize = 2 * 32;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
const INTERFACE_NAME_MAX: usize = 256;
const HARDWARE_ADDRESS_MAX: usize = 128;
const ADDRESSES_MAX: usize = 16;

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    claim::validate(&object.at("spec"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let is_deleted = new.value.is_deleting();
    let requests = RequestNames::of(&new.at("spec").at("devices").at("requests"));
    let (new, old) = (new.at("status"), old.at("status"));
    let (users, allocation) = (new.at("reservedFor"), new.at("allocation"));
    devices::set(
        &users,
        RESERVED_FOR_MAX,
        |user| devices::text_key(user.text("uid")),
        errors,
        |user, errors| {
            for field in ["resource", "name", "uid"] {
                check::required(&user.at(field), "", errors);
            }
        },
    );
    let allocated: Vec<String> = allocation.at("devices").each("results").map(|result| share(result.value)).collect();
    devices::set(
        &new.at("devices"),
        usize::MAX,
        |device| share(device.value),
        errors,
        |device, errors| {
            device_status(device, &allocated, errors);
        },
    );
    if !users.is_empty() && !allocation.exists() {
        errors.forbidden(&users, "may not be specified when `allocated` is not set");
    } else if is_deleted && users.items().any(|user| !old.each("reservedFor").any(|known| known.value == user.value)) {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(&users, detail);
    }
    // Devices cannot move to another claim's terms while somebody uses them.
    if old.has("allocation") && allocation.exists() {
        check::immutable(&allocation, &old.at("allocation"), errors);
    } else if allocation.exists() {
        validate_allocation(&allocation, &requests, errors);
    }
}

fn validate_allocation(allocation: &Node, requests: &RequestNames, errors: &mut Errors) {
    let found = allocation.at("devices");
    devices::list(&found.at("results"), RESULTS_MAX, errors, |result, errors| {
        requests.check(&result.at("request"), errors);
        devices::driver_name(&result.at("driver"), errors);
        devices::pool_name(&result.at("pool"), errors);
        devices::dns_label(&result.at("device"), errors);
        devices::binding_conditions(result, errors);
        devices::share_id(&result.at("shareID"), errors);
    });
    devices::list(&found.at("config"), CONFIGS_MAX, errors, |config, errors| {
        let source = config.at("source");
        match source.str() {
            "" => errors.required(&source, ""),
            _ => check::one_of(&source, &["FromClaim", "FromClass"], errors),
        }
        requests.check_all(&config.at("requests"), errors);
        devices::config(config, false, errors);
    });
    if allocation.has("nodeSelector") {
        node_selector(&allocation.at("nodeSelector"), errors);
    }
}

/// What a driver says of a device; of one that the claim has.
fn device_status(device: &Node, allocated: &[String], errors: &mut Errors) {
    devices::driver_name(&device.at("driver"), errors);
    devices::pool_name(&device.at("pool"), errors);
    devices::dns_label(&device.at("device"), errors);
    devices::share_id(&device.at("shareID"), errors);
    let own = share(device.value);
    if !allocated.contains(&own) {
        let detail = "must be an allocated device in the claim";
        errors.push(FieldError::new(Problem::Invalid, &device.path, own, detail));
    }
    let conditions = device.at("conditions");
    if conditions.len() > CONDITIONS_MAX {
        errors.too_many(&conditions, conditions.len(), CONDITIONS_MAX);
    }
    check::conditions(&conditions, errors);
    if device.has("data") {
        devices::raw_extension(&device.at("data"), DATA_BYTES_MAX, errors);
    }
    let network = device.at("networkData");
    for (field, bytes_max) in [("interfaceName", INTERFACE_NAME_MAX), ("hardwareAddress", HARDWARE_ADDRESS_MAX)] {
        if network.text(field).len() > bytes_max {
            errors.too_long(&network.at(field), bytes_max);
        }
    }
    let key = |address: &Node| devices::text_key(address.str());
    devices::set(&network.at("ips"), ADDRESSES_MAX, key, errors, interface_address);
}

/// An address of an interface, with the length of its network's prefix.
fn interface_address(at: &Node, errors: &mut Errors) {
    let Some((address, prefix)) = machinery::names::lenient_cidr(at.str()) else {
        return errors.invalid(at, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
    };
    let canonical = format!("{address}/{prefix}");
    if canonical != at.str() {
        errors.invalid(at, format!("must be in canonical form ({canonical:?})"));
    }
}
