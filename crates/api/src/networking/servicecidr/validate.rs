//! What a ServiceCIDR may not say. Its ranges are for ever.

use ipnet::IpNet;
use machinery::field::Errors;
use machinery::node::Node;

use crate::check;

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    let cidrs = object.at("spec").at("cidrs");
    if cidrs.is_empty() {
        errors.required(&cidrs, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        errors.invalid(&cidrs, "may only hold up to 2 values");
        return;
    }
    let networks: Vec<IpNet> = cidrs.items().filter_map(|cidr| check::canonical_cidr(&cidr, errors)).collect();
    if let [first, second] = networks.as_slice()
        && first.addr().is_ipv4() == second.addr().is_ipv4()
    {
        errors.invalid(
            &cidrs,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec").at("cidrs"), &old.at("spec").at("cidrs"), errors);
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    check::conditions(&new.at("status").at("conditions"), errors);
}
