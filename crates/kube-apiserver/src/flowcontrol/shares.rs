//! How the seats of the server are divided among priority levels: by their shares, and every few seconds anew by who
//! needs them and who lends. Pure.

use serde_json::Value;

/// How strongly the last demand counts against those before it.
const SMOOTHING: f64 = 0.977;

/// What a PriorityLevelConfiguration says of its seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub exempt: bool,
    pub shares: u32,
    pub lendable_percent: u32,
    pub borrowing_percent: Option<u32>,
}

impl Share {
    pub fn read(spec: &Value) -> Share {
        let exempt = spec["type"] == "Exempt";
        let settings = if exempt { &spec["exempt"] } else { &spec["limited"] };
        let number = |field: &str| settings[field].as_u64().and_then(|number| u32::try_from(number).ok());
        Share {
            exempt,
            shares: number("nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
            lendable_percent: number("lendablePercent").unwrap_or(0),
            borrowing_percent: number("borrowingLimitPercent"),
        }
    }
}

/// Between which numbers of seats a level moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub nominal: u32,
    pub lower: u32,
    pub upper: u32,
}

/// The seats of every level when all of them need what they are given.
pub fn ranges(server: u32, shares: &[Share]) -> Vec<Range> {
    let total: f64 = shares.iter().map(|share| f64::from(share.shares)).sum();
    let range = |share: &Share| {
        let nominal = if total > 0.0 { (f64::from(server) * f64::from(share.shares) / total).ceil() as u32 } else { 0 };
        let part = |percent: u32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
        let borrowed = share.borrowing_percent.map_or(server, part);
        Range { nominal, lower: nominal.saturating_sub(part(share.lendable_percent)), upper: nominal + borrowed }
    };
    shares.iter().map(range).collect()
}

/// How many seats a level wanted lately, whether it had them or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub average: f64,
    pub deviation: f64,
    pub highest: u32,
    pub smoothed: f64,
}

/// Demand that rises is believed at once, demand that falls only slowly.
pub(crate) fn smooth(before: f64, average: f64, deviation: f64) -> f64 {
    let envelope = average + deviation;
    envelope.max(SMOOTHING * before + (1.0 - SMOOTHING) * envelope)
}

/// A level as borrowing sees it.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub exempt: bool,
    pub range: Range,
    pub demand: Demand,
}

/// The seats of every level for the next few seconds, in the order of the wishes.
pub fn borrow(wishes: &[Wish]) -> Vec<u32> {
    let total: u32 = wishes.iter().map(|wish| wish.range.nominal).sum();
    // What is exempt takes what it needs; the others divide the rest.
    let taken: f64 = wishes.iter().filter(|wish| wish.exempt).map(|wish| wish.demand.smoothed).sum();
    let rest = (f64::from(total) - taken).max(0.0);
    let least = |wish: &Wish| {
        // A level keeps what it had in use, up to its nominal seats.
        let kept = wish.range.lower.max(wish.range.nominal.min(wish.demand.highest));
        if wish.exempt { 0.0 } else { f64::from(kept) }
    };
    let limited = || wishes.iter().filter(|wish| !wish.exempt);
    let lowest: f64 = limited().map(|wish| f64::from(wish.range.lower)).sum();
    let kept: f64 = limited().map(least).sum();
    let given = |wish: &Wish| -> f64 {
        if wish.exempt {
            return f64::from(wish.range.nominal).max(wish.demand.smoothed);
        }
        match rest {
            rest if rest <= lowest => f64::from(wish.range.lower),
            rest if rest <= kept => least(wish) * rest / kept,
            _ => 0.0,
        }
    };
    let fair = (rest > lowest && rest > kept).then(|| fairness(wishes, rest, &least));
    wishes
        .iter()
        .map(|wish| match fair {
            Some(fair) if !wish.exempt => portion(wish, fair, least(wish)).round().max(1.0) as u32,
            _ => given(wish).round().max(1.0) as u32,
        })
        .collect()
}

fn portion(wish: &Wish, fair: f64, least: f64) -> f64 {
    // A level that wants nothing still takes part, or nobody would have the seats that are left.
    let wanted = least.max(wish.demand.smoothed).max(0.001);
    (fair * wanted).clamp(least, f64::from(wish.range.upper).max(least))
}

/// The one factor by which everybody's wish is met so that all seats are given. Found by halving: portions grow with it.
fn fairness(wishes: &[Wish], rest: f64, least: &impl Fn(&Wish) -> f64) -> f64 {
    let limited = || wishes.iter().filter(|wish| !wish.exempt);
    let sum = |fair: f64| limited().map(|wish| portion(wish, fair, least(wish))).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    // Far enough for a level that wants a thousandth of a seat to get them all.
    while sum(high) < rest && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if sum(middle) < rest { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use machinery::object::Meta;

    use super::*;

    fn standard() -> Vec<(String, Share)> {
        let objects = crate::bootstrap::objects(&Default::default());
        let levels = objects.iter().filter(|object| object["kind"] == "PriorityLevelConfiguration");
        levels.map(|level| (level.name().to_string(), Share::read(&level["spec"]))).collect()
    }

    #[test]
    fn standard_levels_get_upstreams_seats() {
        let levels = standard();
        let shares: Vec<Share> = levels.iter().map(|(_, share)| *share).collect();
        let found: Vec<(&str, [u32; 3])> = levels
            .iter()
            .zip(ranges(600, &shares))
            .map(|((name, _), range)| (name.as_str(), [range.nominal, range.lower, range.upper]))
            .collect();
        assert_eq!(
            found,
            [
                ("catch-all", [13, 13, 613]),
                ("exempt", [0, 0, 600]),
                ("global-default", [49, 24, 649]),
                ("leader-election", [25, 25, 625]),
                ("node-high", [98, 73, 698]),
                ("system", [74, 50, 674]),
                ("workload-high", [98, 49, 698]),
                ("workload-low", [245, 24, 845]),
            ]
        );
    }

    fn wish(range: [u32; 3], wanted: u32) -> Wish {
        let demand = Demand { average: wanted.into(), deviation: 0.0, highest: wanted, smoothed: wanted.into() };
        Wish { exempt: false, range: Range { nominal: range[0], lower: range[1], upper: range[2] }, demand }
    }

    #[test]
    fn who_needs_more_borrows_what_others_lend() {
        // Both idle: the seats are divided by what cannot be lent.
        assert_eq!(borrow(&[wish([50, 25, 150], 0), wish([50, 25, 150], 0)]), [50, 50]);
        // One is busy: the other keeps its part.
        assert_eq!(borrow(&[wish([50, 25, 150], 0), wish([50, 25, 150], 200)]), [25, 75]);
        // Nothing to lend.
        assert_eq!(borrow(&[wish([50, 50, 150], 0), wish([50, 25, 150], 200)]), [50, 50]);
        // Not more than it may borrow.
        assert_eq!(borrow(&[wish([50, 0, 150], 0), wish([50, 25, 60], 200)]), [40, 60]);
        // What it has in use, up to its nominal seats, it gets back at once.
        assert_eq!(borrow(&[wish([50, 0, 150], 40), wish([50, 25, 150], 200)]), [40, 60]);
        let exempt = Wish { exempt: true, ..wish([0, 0, 100], 20) };
        assert_eq!(borrow(&[exempt, wish([50, 25, 150], 0), wish([50, 25, 150], 0)]), [20, 40, 40]);
    }

    #[test]
    fn demand_falls_slowly() {
        assert_eq!(smooth(0.0, 10.0, 2.0), 12.0);
        assert!(smooth(100.0, 0.0, 0.0) > 97.0);
        assert!(smooth(100.0, 0.0, 0.0) < 98.0);
    }
}
