//! A watch that delivers nothing new while a machine moves from object to object.

use capmaas_manager::kubernetes::Key;
use serde_json::json;

use crate::chaos::inventory;
use crate::law::{Seen, held};
use crate::objects::{Endpoint, HOME, cluster, credentials, machine};
use crate::world::{ADMIN, Cast, World};

/// No other world uses this seed: each has its own MAAS.
const SEED: u64 = u64::MAX;

impl World {
    async fn comes(&mut self, name: &str) -> String {
        machine(self, HOME, name, None, false, &json!({}));
        self.run_for(900).await;
        let object = self.port.object("MaasMachine", &Key::new("default", name)).unwrap();
        assert_eq!(object["status"]["ready"], true, "{name}: {object:#}");
        held(&object).unwrap()
    }

    async fn goes(&mut self, name: &str) {
        let key = Key::new("default", name);
        self.port.delete("MaasMachine", &key);
        self.run_for(900).await;
        assert_eq!(self.port.object("MaasMachine", &key), None, "{name} is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn s06_what_the_watch_still_says_of_the_one_before_neither_stops_the_next_one_nor_leaks_its_machine() {
    let mut world = World::new(SEED, Cast::Metal);
    inventory(&world, 1);
    credentials(&world, &world.endpoint(), ADMIN);
    cluster(&world, HOME, Endpoint::Users, &json!({}));
    world.after_last_pass = Seen::anew(&world);
    let only = world.comes("first").await;
    world.port.let_index_lag(true);
    world.goes("first").await;
    assert_eq!(world.comes("second").await, only);
    world.goes("second").await;
    let free = &world.inventory()[&only];
    assert_eq!((free.owner, free.state.as_str(), free.on), (None, "Ready", false));
}
