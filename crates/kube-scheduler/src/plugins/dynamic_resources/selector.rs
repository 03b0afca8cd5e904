//! Whether a device is what a class or a request selects, in CEL.

use std::rc::Rc;

use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceSelector};
use machinery::cel::{EvalError, Issues, Program, Val};
use machinery::quantity::Quantity;

use super::devices::Offer;

/// How much all selectors of one request may cost for one device.
const COST_MAX: u64 = 1_000_000;

/// Why it cannot be said whether a device is selected.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SelectorError {
    #[error(transparent)]
    Parse(#[from] Issues),
    #[error("{0}: CEL expression must evaluate to bool")]
    NoBoolean(String),
    #[error("{0}: CEL runtime error: {1}")]
    Eval(String, #[source] EvalError),
    #[error("capacity {0} is not a quantity")]
    Capacity(String),
    /// What a driver calls a version is none.
    #[error(transparent)]
    Version(EvalError),
}

/// Selectors that all must hold, each with where it stands.
#[derive(Debug, Default)]
pub struct Selectors(Vec<(String, Program)>);

impl Selectors {
    /// Those of a class or a claim, as `class gpu` or `claim default/c`.
    pub fn add(&mut self, owner: &str, selectors: Option<&Vec<DeviceSelector>>) -> Result<(), SelectorError> {
        for (place, selector) in selectors.into_iter().flatten().enumerate() {
            let Some(expression) = &selector.cel else { continue };
            // The server has checked it, but an older one may have known less.
            self.0.push((format!("{owner}: selector #{place}"), Program::parse(&expression.expression)?));
        }
        Ok(())
    }

    pub fn hold(&self, offer: &Offer) -> Result<bool, SelectorError> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let (device, mut budget) = (device(offer)?, COST_MAX);
        for (place, program) in &self.0 {
            match program.eval(&[("device", device.clone())], &mut budget) {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Ok(false),
                Ok(_) => return Err(SelectorError::NoBoolean(place.clone())),
                Err(error) => return Err(SelectorError::Eval(place.clone(), error)),
            }
        }
        Ok(true)
    }
}

/// A name without a domain is one of the driver's own.
pub fn qualified<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn device<'a>(offer: &Offer<'a>) -> Result<Val<'a>, SelectorError> {
    let driver = offer.slice.spec.driver.as_str();
    let mut attributes = Vec::new();
    for (name, attribute) in offer.device.attributes.iter().flatten() {
        attributes.push((qualified(name, driver), value(attribute)?));
    }
    let mut capacity = Vec::new();
    for (name, amount) in offer.device.capacity.iter().flatten() {
        let quantity = Quantity::parse(&amount.value.0).map_err(|_| SelectorError::Capacity(name.clone()))?;
        capacity.push((qualified(name, driver), Val::Quantity(quantity)));
    }
    let text = |text: &'a str| Val::text(text);
    Ok(Val::Map(Rc::new(vec![
        (text("driver"), text(driver)),
        (text("attributes"), by_domain(attributes)),
        (text("capacity"), by_domain(capacity)),
        (text("allowMultipleAllocations"), Val::Bool(offer.device.allow_multiple_allocations == Some(true))),
    ])))
}

fn by_domain<'a>(mut values: Vec<((&'a str, &'a str), Val<'a>)>) -> Val<'a> {
    values.sort_by_key(|(name, _)| *name);
    let mut domains: Vec<(Val<'a>, Val<'a>)> = Vec::new();
    for domain in values.chunk_by(|((a, _), _), ((b, _), _)| a == b) {
        let inside = domain.iter().map(|((_, name), value)| (Val::text(*name), value.clone())).collect();
        domains.push((Val::text(domain[0].0.0), Val::Map(Rc::new(inside))));
    }
    Val::Map(Rc::new(domains))
}

fn value<'a>(attribute: &'a DeviceAttribute) -> Result<Val<'a>, SelectorError> {
    let list = |items: Vec<Val<'a>>| Val::list(items);
    Ok(match attribute {
        DeviceAttribute { int: Some(number), .. } => Val::Int(*number),
        DeviceAttribute { bool: Some(flag), .. } => Val::Bool(*flag),
        DeviceAttribute { string: Some(text), .. } => Val::text(text.as_str()),
        DeviceAttribute { version: Some(text), .. } => version(text)?,
        DeviceAttribute { ints: Some(all), .. } => list(all.iter().map(|number| Val::Int(*number)).collect()),
        DeviceAttribute { bools: Some(all), .. } => list(all.iter().map(|flag| Val::Bool(*flag)).collect()),
        DeviceAttribute { strings: Some(all), .. } => list(all.iter().map(|text| Val::text(text.as_str())).collect()),
        DeviceAttribute { versions: Some(all), .. } => {
            list(all.iter().map(|text| version(text)).collect::<Result<_, _>>()?)
        }
        _ => Val::Null,
    })
}

fn version<'a>(text: &'a str) -> Result<Val<'a>, SelectorError> {
    let program = Program::parse("semver(text)")?;
    let mut budget = COST_MAX;
    program.eval(&[("text", Val::text(text))], &mut budget).map_err(SelectorError::Version)
}
