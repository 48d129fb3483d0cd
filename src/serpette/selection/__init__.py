"""The main job: candidates, a choice on validation images, a winner."""
