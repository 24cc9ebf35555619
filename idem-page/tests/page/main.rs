//! The page: its guard and its views without a browser, and all of it in Chromium.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod browser;
mod changes;
mod guard;
mod screen;
mod views;
mod visitor;
mod world;
