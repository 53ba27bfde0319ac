"""What a release will be like before anything is charged: noise, limits, accuracy, schedule."""
