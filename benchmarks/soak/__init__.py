"""Scheduled releases for hours, on a site where everything fails now and then: does every one finish, with its one charge?"""
