//! Thousands of objects of one kind. Most have been worked off before the controller starts into them, as after a restart in a
//! large cluster; the last ones have not. What it costs to make them is not what is tested, so all but the first are put into
//! the store as copies of it.

use std::sync::Arc;
use std::time::Duration;

use crate::controllers::Surroundings;
use crate::fault::Fault;
use crate::injector::Injector;
use crate::run::Life;
use crate::scenario::Scenario;
use crate::world::{FIRST, World};

/// Those that the controllers have not seen yet.
const NEW: usize = 200;
const WORKED_OFF: Duration = Duration::from_secs(60);

pub async fn create(world: &World, scenario: &Scenario, surroundings: &Arc<Surroundings>) {
    let Some((count, object)) = &scenario.flood else { return };
    // Pods are refused without one.
    if scenario.controllers[0] != "serviceaccount-controller" {
        world.create_account("flood").await;
    }
    let before = world.store.content();
    let made = world.first_of_flood(object).await;
    let calm = Injector::new(Fault::None, scenario.answers.clone());
    let names = scenario.controllers.iter();
    let lives: Vec<Life> = names.map(|name| Life::start(world, name, surroundings, &calm)).collect();
    tokio::time::sleep(WORKED_OFF).await;
    drop(lives);
    world.flood(&world.store.content().since(&before).about(FIRST), 1..count - NEW);
    world.flood(&made.about(FIRST), count - NEW..*count);
}
