//! `pagetide demo`: what breaks there in front of people's eyes is counted right, and nothing of it
//! stays.

mod ends;
mod play;
mod show;
mod stage;
