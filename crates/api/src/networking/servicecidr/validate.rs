//! Validation of ServiceCIDR.

use ipnet::IpNet;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::check;

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    ranges(&object.at("spec").at("cidrs"), errors);
}

fn ranges(cidrs: &Node, errors: &mut Errors) {
    if cidrs.is_empty() {
        errors.required(cidrs, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        let shown = format!("{{\"CIDRs\":{}}}", cidrs.value);
        errors.push(FieldError::new(Problem::Invalid, &cidrs.path, shown, "may only hold up to 2 values"));
        return;
    }
    let networks: Vec<IpNet> = cidrs.items().filter_map(|cidr| check::canonical_cidr(&cidr, errors)).collect();
    if let [first, second] = networks.as_slice()
        && first.addr().is_ipv4() == second.addr().is_ipv4()
    {
        errors
            .invalid(cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
    }
}

/// Ranges are for ever, but a second one may join the first.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (new, old) = (new.at("spec").at("cidrs"), old.at("spec").at("cidrs"));
    let may_differ = old.len() == new.len() || (old.len() == 1 && new.len() == 2);
    if !may_differ {
        errors.invalid(&new, check::IMMUTABLE);
        return;
    }
    if new.len() > old.len() {
        ranges(&new, errors);
    }
    for (after, before) in new.items().zip(old.items()) {
        check::immutable(&after, &before, errors);
    }
}
