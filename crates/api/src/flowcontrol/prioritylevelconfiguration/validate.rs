//! Validation of PriorityLevelConfiguration.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;

use super::super::mandatory;

use crate::check;

const EXEMPT: &str = "exempt";
/// Of the conversion from an older version, and never of a user.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
const QUEUES_MAX: i64 = 10_000_000;
/// Hands are dealt from a 64-bit hash, of which some bits must be left over.
const ENTROPY_BITS_MAX: u32 = 60;

pub(super) fn validate(level: &Node, errors: &mut Errors) {
    let spec = level.at("spec");
    let kind = spec.at("type");
    if (level.value.name() == EXEMPT) != (kind.str() == "Exempt") {
        errors.invalid_value(&kind.path, &kind.str().into(), "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (spec.at("limited"), spec.at("exempt"));
    match kind.str() {
        "Exempt" => {
            if limited.exists() {
                errors.forbidden(&limited, "must be nil if the type is not Limited");
            }
            if exempt.exists() {
                shares(&exempt, errors);
                percent(&exempt.at("lendablePercent"), errors);
            }
        }
        "Limited" => {
            if exempt.exists() {
                errors.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.exists() {
                validate_limited(&limited, errors)
            } else {
                errors.required(&limited, "must not be empty when type is Limited")
            }
        }
        "" => errors.required(&kind, ""),
        _ => check::one_of_texts(&kind, &["Exempt", "Limited"], errors),
    }
    if level.value.annotation(ZERO_SHARES).is_some() {
        errors.forbidden(&level.at("metadata").at("annotations"), format!("annotation '{ZERO_SHARES}' is forbidden"));
    }
    mandatory::priority_level(level, errors);
}

fn validate_limited(limited: &Node, errors: &mut Errors) {
    shares(limited, errors);
    let response = limited.at("limitResponse");
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.str() {
        "Reject" if queuing.exists() => {
            errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Reject" => {}
        "Queue" if !queuing.exists() => {
            errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => validate_queuing(&queuing, errors),
        "" => errors.required(&kind, ""),
        _ => check::one_of_texts(&kind, &["Queue", "Reject"], errors),
    }
    percent(&limited.at("lendablePercent"), errors);
    let borrowing = limited.at("borrowingLimitPercent");
    if borrowing.int().is_some_and(|number| number < 0) {
        errors.invalid(&borrowing, "if specified, must be a non-negative integer");
    }
}

fn shares(level: &Node, errors: &mut Errors) {
    let shares = level.at("nominalConcurrencyShares");
    if shares.int().is_some_and(|number| number < 0) {
        errors.invalid(&shares, "must be a non-negative integer");
    }
}

fn percent(at: &Node, errors: &mut Errors) {
    if at.int().is_some_and(|number| !(0..=100).contains(&number)) {
        errors.invalid(at, "must be between 0 and 100, inclusive");
    }
}

fn validate_queuing(queuing: &Node, errors: &mut Errors) {
    let number = |field: &'static str| queuing.number(field).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    for field in ["queueLengthLimit", "queues"] {
        if number(field) <= 0 {
            errors.invalid_value(&queuing.at(field).path, &number(field).into(), "must be positive");
        }
    }
    if queues > QUEUES_MAX {
        errors.invalid(&queuing.at("queues"), format!("must not be greater than {QUEUES_MAX}"));
    }
    let hand_size = queuing.at("handSize");
    if hand <= 0 {
        errors.invalid_value(&hand_size.path, &hand.into(), "must be positive");
    } else if hand > queues {
        errors.invalid(&hand_size, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > ENTROPY_BITS_MAX {
        errors.invalid(
            &hand_size,
            format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than \
                 {ENTROPY_BITS_MAX}"
            ),
        );
    }
}

/// The bits that it takes to deal a hand from that many queues.
fn entropy_bits(queues: i64, hand: i64) -> u32 {
    let mut hands = 1f64;
    for left in (queues - hand + 1..=queues).take(ENTROPY_BITS_MAX as usize + 1) {
        hands *= left as f64;
    }
    hands.log2().ceil() as u32
}
