//! The relay, which publishes the messages of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `builder`, `settings`, `parts` | the builder, its options, and the parts of a relay |
//! | `run`, `opening` | the lifecycle: start, run, drain; the opening of the sink |
//! | `state`, `starting`, `events` | the state of a running relay, what it starts next, and what changes it |
//! | `queue`, `of_key`, `entry` | the messages that are read; those of one key; one of them |
//! | `known`, `unread` | those that need not be read again; those of a key that are not kept |
//! | `room` | how many messages may be here, and how many of one key |
//! | `ready`, `places` | the messages that can be published, and how many of each kind may be at a time |
//! | `delays`, `waking` | those that wait for their next attempt, and when they are read again |
//! | `hanging`, `destinations`, `destination` | destinations that hang, and their messages, which are set aside; one destination |
//! | `aside` | how many messages are set aside |
//! | `floors`, `level` | from where lanes are read |
//! | `reads`, `pause` | the keys that a read leaves out; when it is not worth its time |
//! | `lanes` | the lanes that are leased |
//! | `broker`, `panics` | whether the broker answers; panics of the sink |
//! | `work` | the statements and calls that run beside each other |
//! | `operator` | dead letters, for an operator |

mod aside;
mod broker;
mod builder;
mod delays;
mod destination;
mod destinations;
mod entry;
mod events;
mod floors;
mod hanging;
mod known;
mod lanes;
mod level;
mod of_key;
mod opening;
mod operator;
mod panics;
mod parts;
mod pause;
mod places;
mod queue;
mod reads;
mod ready;
mod room;
mod run;
mod settings;
mod starting;
mod state;
mod unread;
mod waking;
mod work;

pub use builder::Relay;
