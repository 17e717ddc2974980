//! The terminal: taken over, and given back however the program ends.

use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::Size;
use rustix::process::{Signal, kill_current_process_group};

use super::app::App;
use super::draw::draw;

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub struct Screen {
    /// Never dropped: that would tell of a terminal that has gone away, to that terminal, and panic when that fails.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over. A panic, in whichever thread, gives it back before it tells of itself.
    pub fn take() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                tell(panic);
            }));
        });
        // What the terminal can show has been decided already, NO_COLOR included.
        force_color_output(true);
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        let screen = Self { terminal };
        enter().context("the terminal cannot be set up for a screen; use isotherm record instead")?;
        Ok(screen)
    }

    /// How large the terminal is now.
    pub fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    /// Whether the terminal is still ours: a panic has given it back otherwise.
    pub fn is_ours(&self) -> bool {
        TAKEN.load(Ordering::Acquire)
    }

    /// Draws the state; nothing once the terminal has been given back.
    ///
    /// `state` hands out the state while cells are drawn, not while they are written to the terminal, which may take
    /// its time.
    pub fn draw<G: std::ops::Deref<Target = App>>(&mut self, state: impl FnOnce(Size) -> G) -> io::Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        self.terminal.draw(|frame| {
            let app = state(frame.area().as_size());
            draw(&app, frame.buffer_mut());
        })?;
        Ok(())
    }

    /// Forgets what is on the terminal, so that the next drawing writes everything.
    pub fn forget(&mut self) -> io::Result<()> {
        // `clear` would ask the terminal where its cursor is, and the answer would go to whoever reads the keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Gives the terminal back and stops the whole job, as Ctrl-Z does; comes back when the job goes on.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_current_process_group(Signal::TSTP)?;
        enter()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::Release);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

fn give_back() {
    if TAKEN.swap(false, Ordering::AcqRel) {
        // A terminal that went away needs nothing back.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
